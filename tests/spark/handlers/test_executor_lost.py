"""Executors in processes of their own are killed at their work, and nothing is lost or doubled.

One program loses them, one after the other, because Spark takes long to start; here is what came
of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.spark.programs import came_of

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def lost(
    spark_environ: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    store_url: Callable[[], str],
) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("losses")
    return came_of("loss_program", [str(folder), store_url()], spark_environ)


@pytest.mark.parametrize(
    "doing", ["write", "write_that_was_staged", "write_on_a_store", "stream", "run"]
)
def test_an_executor_that_is_killed_at_its_work_loses_and_doubles_nothing(
    lost: Mapping[str, str], doing: str
) -> None:
    assert not lost[doing], lost[doing]

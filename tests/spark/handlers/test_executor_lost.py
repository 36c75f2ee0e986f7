"""Executors in processes of their own are killed at their work; no job is lost or repeated.

One program kills them, one after the other, because Spark takes long to start; each test here
checks the outcome of one kill. ``test_clusters`` kills one in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.spark.programs import outcomes_of

WORK = ("run", "write_that_was_staged", "stream", "write", "write_on_a_store")
"""For a full run: here Spark alone decides that a task runs again. ``test_job_writer`` and
``test_stream_reader`` let tasks fail at the same points, and leave the executor alive."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]


@pytest.fixture(scope="module")
def lost(
    spark_environ: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    store_url: Callable[[], str],
) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("losses")
    return outcomes_of("loss_program", [str(folder), store_url(), *WORK], spark_environ)


@pytest.mark.parametrize("doing", WORK)
def test_an_executor_that_is_killed_at_its_work_loses_and_repeats_nothing(
    lost: Mapping[str, str], doing: str
) -> None:
    assert not lost[doing], lost[doing]

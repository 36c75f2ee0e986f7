"""What everything else leans on works on a standalone cluster and over Spark Connect.

``every_place`` tries all that the guide claims of them (``make places``). The features of a place
are tried by one program, one after the other, because Spark takes long to start; here is what came
of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from tests.spark.places import start_connect, start_standalone
from tests.spark.programs import came_of
from tests.spark.session import CONFIG

BASICS = ("read", "write_staged", "read_stream", "run")
"""Rows that come from the driver and from executors, a source that lives on, and handlers."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def on_standalone(
    stack: ExitStack, spark_environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("standalone")
    master = start_standalone(stack, folder, spark_environ)
    return came_of("feature_program", [master, str(folder), *BASICS], spark_environ)


@pytest.fixture(scope="module")
def on_connect(
    stack: ExitStack, spark_environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("connect")
    server = start_connect(stack, folder, spark_environ, CONFIG)
    return came_of("feature_program", [server, str(folder), *BASICS], spark_environ)


@pytest.mark.parametrize("feature", BASICS)
def test_it_works_on_a_standalone_cluster(on_standalone: Mapping[str, str], feature: str) -> None:
    assert not on_standalone[feature], on_standalone[feature]


@pytest.mark.parametrize("feature", BASICS)
def test_it_works_over_spark_connect(on_connect: Mapping[str, str], feature: str) -> None:
    assert not on_connect[feature], on_connect[feature]

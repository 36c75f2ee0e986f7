"""What the guide claims of a standalone cluster and of Spark Connect is so.

All of it is tried by ``make places``, in three minutes; ``make test-all`` tries what the rest leans
on, and ``make test`` does so over Spark Connect, where a driver has no JVM of its own. The
features of a place are tried by one program, one after the other, because Spark takes long to
start; here is what came of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from tests.spark.clusters import start_connect, start_standalone
from tests.spark.features import COMMANDS, FEATURES
from tests.spark.programs import came_of
from tests.spark.session import CONFIG

BASICS = ("read", "write_staged", "read_stream", "run")
"""Rows that come from the driver and from executors, a source that lives on, and handlers."""
IS_ALL_WANTED = os.environ.get("PLACES") == "all"
CHOSEN = () if IS_ALL_WANTED else BASICS
"""The features that the program tries; empty means all."""
NAMES = (*FEATURES, *COMMANDS) if IS_ALL_WANTED else BASICS
COPIES = ("write_beside_a_copy",) if IS_ALL_WANTED else ()
"""Spark makes copies of slow tasks on a cluster only."""

pytestmark = pytest.mark.timeout(900)


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
    # Commands do with one executor, where the program does not say more.
    environ = {**spark_environ, "PYSPARK_SUBMIT_ARGS": "--conf spark.cores.max=1 pyspark-shell"}
    return came_of("feature_program", [master, str(folder), *CHOSEN], environ)


@pytest.fixture(scope="module")
def on_connect(
    stack: ExitStack, spark_environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("connect")
    server = start_connect(stack, folder, spark_environ, CONFIG)
    return came_of("feature_program", [server, str(folder), *CHOSEN], spark_environ)


@pytest.mark.full  # Executors in processes of their own are lost in `test_executor_lost`.
@pytest.mark.parametrize("feature", [*NAMES, *COPIES])
def test_it_works_on_a_standalone_cluster(on_standalone: Mapping[str, str], feature: str) -> None:
    assert not on_standalone[feature], on_standalone[feature]


@pytest.mark.parametrize("feature", NAMES)
def test_it_works_over_spark_connect(on_connect: Mapping[str, str], feature: str) -> None:
    assert not on_connect[feature], on_connect[feature]

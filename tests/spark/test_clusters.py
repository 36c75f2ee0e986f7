"""bucketq works on a standalone cluster and over Spark Connect, as the guide says.

``make test`` tries over Spark Connect what depends on it: a driver has no JVM of its own there. For
the same reason the command that is stopped by a signal starts fast there.
``make test-all`` tries the basics in both places, and ``make places`` all features. The features of
a place are tried by one program, one after the other, because Spark takes long to start; each test
here checks the outcome of one feature.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import bucketq
from tests.spark.clusters import start_connect, start_standalone
from tests.spark.features import COMMANDS, FEATURES
from tests.spark.programs import outcomes_of
from tests.spark.session import CONFIG
from tests.spark.signalled_command import signalled_command
from tests.spark.spark_home import ROOT

ON_CONNECT = ("read_stream", "run", "run_and_lose_an_executor")
"""A source that stays alive on the server, and handlers, which use tags and interruptions, also if
an executor is killed while they run."""
BASICS = (*ON_CONNECT, "read", "read_deep", "write_staged", "replayed")
"""Also rows that come from the driver, rows that executors read, rows that they stage, and frames
that may be empty."""
IS_ALL_WANTED = os.environ.get("PLACES") == "all"
NAMES = (*FEATURES, "run_and_lose_an_executor", *COMMANDS) if IS_ALL_WANTED else BASICS
COPIES = ("write_beside_a_copy",) if IS_ALL_WANTED else ()
"""Spark makes copies of slow tasks on a cluster only."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> Sequence[str]:
    """The features that the program tries; empty means all."""
    if IS_ALL_WANTED:
        return ()
    return BASICS if request.config.getoption("full") else ON_CONNECT


@pytest.fixture(scope="module")
def on_standalone(
    stack: ExitStack,
    spark_environ: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    chosen: Sequence[str],
) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("standalone")
    master = start_standalone(stack, folder, spark_environ)
    # One executor is enough for commands; the program asks for two.
    environ = {**spark_environ, "PYSPARK_SUBMIT_ARGS": "--conf spark.cores.max=1 pyspark-shell"}
    return outcomes_of("feature_program", [master, str(folder), *chosen], environ)


@pytest.fixture(scope="module")
def server(
    stack: ExitStack, spark_environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The address of a Connect server."""
    return start_connect(stack, tmp_path_factory.mktemp("server"), spark_environ, CONFIG)


@pytest.fixture(scope="module")
def on_connect(
    server: str,
    spark_environ: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    chosen: Sequence[str],
) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("connect")
    return outcomes_of("feature_program", [server, str(folder), *chosen], spark_environ)


@pytest.mark.full  # The Connect server has executors in processes of their own in every run.
@pytest.mark.parametrize("feature", [*NAMES, *COPIES])
def test_it_works_on_a_standalone_cluster(on_standalone: Mapping[str, str], feature: str) -> None:
    assert not on_standalone[feature], on_standalone[feature]


@pytest.mark.parametrize(
    "feature",
    [pytest.param(name, marks=[] if name in ON_CONNECT else pytest.mark.full) for name in NAMES],
)
def test_it_works_over_spark_connect(on_connect: Mapping[str, str], feature: str) -> None:
    assert not on_connect[feature], on_connect[feature]


def test_a_signal_lets_handlers_finish_and_claims_no_more(
    server: str, spark_environ: dict[str, str], tmp_path: Path
) -> None:
    signalled_command(server, tmp_path, os.environ | spark_environ)


@pytest.mark.full  # It starts another driver, for what is Spark's own part mostly.
def test_a_declarative_pipeline_has_a_source_and_a_sink(
    server: str, spark_environ: dict[str, str], tmp_path: Path
) -> None:
    urls = {name: (tmp_path / f"{name}.json").as_uri() for name in ("pages", "index")}
    with bucketq.connect_sync(urls["pages"], mode="direct") as queue:
        for page in range(5):
            queue.push("crawl", {"page": page})
    shutil.copy(ROOT / "tests" / "spark" / "sample_pipeline.py", tmp_path)
    spec = {
        "name": "crawler",
        "storage": (tmp_path / "storage").as_uri(),
        "libraries": [{"glob": {"include": "sample_pipeline.py"}}],
    }
    (tmp_path / "spark-pipeline.yml").write_text(json.dumps(spec))
    environ = {
        **os.environ,
        **spark_environ,
        "SPARK_REMOTE": server,
        **{f"{name.upper()}_URL": url for name, url in urls.items()},
    }
    command = [sys.executable, "-m", "pyspark.pipelines.cli", "run"]
    for _ in range(2):  # The second run has nothing to push.
        ran = subprocess.run(
            command,
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        with bucketq.connect_sync(urls["index"], mode="direct") as queue:
            pushed = [job.payload for job in queue.jobs().jobs]
        assert sorted(each["page"] for each in pushed) == [0, 1, 2, 3, 4]

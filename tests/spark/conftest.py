"""One Spark session for all tests of a run, and queues for it to read and write.

The session takes a while to start, in the setup of the first test that uses it. Without Java the
tests are skipped with the advice; with ``BUCKETQ_TEST_REQUIRE_ALL`` they fail.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bucketq.spark
from bucketq.errors import InvalidRequestError
from bucketq.spark.session.java import find_java
from tests.environ import IS_ALL_REQUIRED, SPILL_BYTES, child_path
from tests.servers.running import running
from tests.servers.server import ENVIRON
from tests.spark.class_data_sharing import java_options
from tests.spark.session import PLAIN_PLANS, configured
from tests.spark.spark_home import ROOT, spark_home

TIMEOUT_S = 600
"""Includes the start of the JVM, which takes a minute on a busy machine; later tests take a second
or two."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = item.nodeid.startswith("tests/spark/")
        if is_here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark_environ(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return the environment for a process that starts Spark.

    In a full run Spark's Python processes import by themselves what they need, as for users.
    """
    try:
        find_java(os.environ)
    except InvalidRequestError as error:
        if IS_ALL_REQUIRED:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    # `early_spill` customizes the start of Python too, and Python allows one of them.
    is_usual = request.config.getoption("full") or SPILL_BYTES
    preload = [] if is_usual else [ROOT / "tests" / "spark" / "preload"]
    environ = {
        **ENVIRON,
        # Hundreds of processes import the same modules, and must not compile them again.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": child_path(*preload, ROOT),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # For every JVM that is started. One that is killed leaves its files behind.
    options = java_options({**os.environ, **environ})
    place = tmp_path_factory.mktemp("java")
    return {**environ, "JDK_JAVA_OPTIONS": f"{options} -Djava.io.tmpdir={place}"}


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest,
    spark_environ: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkSession]:
    """The session, with the format registered.

    Spark finds it by itself as well, unless this machine is so busy that it gives up looking.

    Its plans are plain, except in a full run and with ``usual_plans``. The program that loses
    executors and the Connect server have Spark's usual ones.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environ.items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("spark")
        session = configured("local[2,2]", folder).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        if not request.config.getoption("full"):
            plan_plainly(session)
        bucketq.spark.register(session)
        yield session
        session.stop()


def plan_plainly(spark: SparkSession) -> None:
    for name, value in PLAIN_PLANS.items():
        spark.conf.set(name, value)


@pytest.fixture
def usual_plans(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Let Spark adapt and compile its plans during a test, as it does for users."""
    for name in PLAIN_PLANS:
        spark.conf.unset(name)
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    yield
    if not request.config.getoption("full"):
        plan_plainly(spark)


_SERVER = pytest.param("seaweedfs", marks=[pytest.mark.servers, pytest.mark.full])
"""``test_stream_killed`` and ``test_job_writer`` use it in every run."""


@pytest.fixture(params=["file", _SERVER])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new queue: on a file, and on a real object store."""
    if request.param == "file":
        return (tmp_path / "queue.json").as_uri()
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    return running(request.param).url()


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """The same, on a file only."""
    return (tmp_path / "queue.json").as_uri()


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Makes addresses of queues on a real object store, or on files if this machine has none."""

    def make() -> str:
        try:
            return running("seaweedfs").url()
        except pytest.skip.Exception:
            return (tmp_path_factory.mktemp("store") / "queue.json").as_uri()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRON.items():
            patch.setenv(name, value)
        yield make

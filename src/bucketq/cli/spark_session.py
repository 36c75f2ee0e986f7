"""A Spark session for a command, and a worker whose handlers run on it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bucketq.errors import InvalidRequestError

if TYPE_CHECKING:
    from bucketq.worker.worker import Worker

_log = logging.getLogger("bucketq.worker")
_REMOTE = "sc://"
_MASTERS = ("local", "spark://", "yarn", "k8s://", _REMOTE)
_NAME = "bucketq work"


@contextmanager
def on_spark(master: str, worker: Worker, batch_jobs: int | None) -> Iterator[Worker]:
    """Start Spark, let it run the handlers of a worker, and stop it."""
    if find_spec("pyspark") is None:
        message = '--spark needs pyspark: pip install "bucketq[spark]"'
        raise InvalidRequestError(message)
    if not master.startswith(_MASTERS):
        message = (
            f"{master!r} is no master of Spark: write local[4], spark://host:7077, yarn, "
            "k8s://host, or sc://host for Spark Connect"
        )
        raise InvalidRequestError(message)
    from bucketq.spark.executor import SparkWorker

    session = _started(master)
    try:
        yield SparkWorker(session, worker, batch_jobs=batch_jobs)
    finally:
        # One that is gone cannot be stopped, and why the run has ended is told elsewhere.
        with suppress(Exception):
            session.stop()


def _started(master: str) -> Any:
    from pyspark.sql import SparkSession

    from bucketq.spark.cluster import reason
    from bucketq.spark.java import find_java

    _log.info("starting Spark: %s", master)
    builder = SparkSession.builder.appName(_NAME)
    if master.startswith(_REMOTE):
        builder = builder.remote(master)
    else:
        find_java(os.environ)
        if master.startswith("local"):
            # Else Spark takes the first python3 of the PATH, which may lack what handlers need.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master(master)
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
        )
    try:
        return builder.getOrCreate()
    except Exception as error:
        message = f"Spark does not start with master {master!r}: {reason(error)}"
        raise InvalidRequestError(message) from error

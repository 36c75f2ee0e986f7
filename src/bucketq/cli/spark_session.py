"""A Spark session for a command, and a worker whose handlers run on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bucketq.errors import InvalidRequestError

if TYPE_CHECKING:
    from bucketq.worker.worker import Worker

_REMOTE = "sc://"
_NAME = "bucketq work"


@contextmanager
def on_spark(master: str, worker: Worker, batch_jobs: int | None) -> Iterator[Worker]:
    """Start Spark, let it run the handlers of a worker, and stop it."""
    if find_spec("pyspark") is None:
        message = '--spark needs pyspark: pip install "bucketq[spark]"'
        raise InvalidRequestError(message)
    from bucketq.spark.executor import SparkWorker

    session = _started(master)
    try:
        yield SparkWorker(session, worker, batch_jobs=batch_jobs)
    finally:
        session.stop()


def _started(master: str) -> Any:
    from pyspark.sql import SparkSession

    from bucketq.spark.java import find_java

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
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else type(error).__name__
        message = f"Spark does not start with master {master!r}: {reason}"
        raise InvalidRequestError(message) from error

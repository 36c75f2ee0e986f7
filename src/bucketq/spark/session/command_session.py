"""Starts a Spark session for a command, quietly, and stops it at the end.

A missing pyspark or Java is reported before anything is started. What the JVM prints goes to a
file, and is shown only if it does not start. This is for commands, not for libraries: it changes
the environment and the standard error of the process while the JVM starts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.spark.registration import register
from bucketq.spark.session.compatibility import check_version
from bucketq.spark.session.java import find_java
from bucketq.spark.session.master_url import check_master, check_reachable, is_connect, is_local
from bucketq.spark.session.spark_errors import reason_of, translate_errors
from bucketq.spark.session.worker_python import set_python_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.log.level": "OFF",
}
_LOCAL_CONFIG = {
    # Other hosts have no business with this Spark.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Spark's default of 200 costs seconds of scheduling for the few rows of a report.
    "spark.sql.shuffle.partitions": "8",
    # Most of the work is done in Python, so a JVM that starts fast is worth more than a fast one.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_LAST_LINES = 3
"""How many lines of the JVM's output an error shows: the cause is in the last ones."""
_NOISE = re.compile(
    r"at |\.\.\. |WARNING: |Using Spark's|Setting (default|Spark) log|To adjust log|.* WARN Native"
)
"""Lines that the JVM prints at every start, and frames of Java stacks."""
_SPARK_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_PY4J_LOGGERS = ("py4j.clientserver", "py4j.java_gateway")


@contextlib.contextmanager
def command_session(master: str, name: str, *, is_loud: bool = False) -> Iterator[SparkSession]:
    """Start a session with the format ``bucketq``, and stop it at the end."""
    require_spark(master)
    check_reachable(master)
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415 - an extra

    builder = Session.builder.appName(f"bucketq {name}")
    if is_connect(master):
        builder = builder.remote(master)
    else:
        set_python_variables()
        config = _CONFIG | (_LOCAL_CONFIG if is_local(master) else {})
        for key, value in config.items():
            builder = builder.config(key, value)
        builder = builder.master(master)
    quiet = contextlib.nullcontext() if is_loud else _quiet_loggers()
    with tempfile.TemporaryFile() as log, translate_errors(), quiet:
        with contextlib.nullcontext() if is_loud else _stderr_to(log):
            try:
                spark = builder.getOrCreate()
            except Exception as error:
                raise _not_started(master, error, log) from error
        try:
            if not is_loud and not is_connect(master):
                _silence_accumulator_server(spark)
            register(spark)
            yield spark
        finally:
            # If the JVM is gone it cannot be stopped, and the error that is raised says so.
            with contextlib.suppress(Exception):
                spark.stop()


def require_spark(master: str) -> None:
    """Raise ``InvalidRequestError`` if the master is not valid, or a package or Java is missing.

    Spark itself reports these late, and its errors do not say what to install.
    """
    check_master(master)
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            message = f'this needs Spark, and {module} is missing: pip install "bucketq[spark]"'
            raise InvalidRequestError(message)
    check_version(metadata.version("pyspark"))
    if not is_connect(master):
        find_java(os.environ)
        return
    for module in ("grpc", "grpc_status", "zstandard"):
        if find_spec(module) is None:
            message = (
                f'Spark Connect needs {module}, which is missing: pip install "pyspark[connect]"'
            )
            raise InvalidRequestError(message)


def _silence_accumulator_server(spark: SparkSession) -> None:
    """Keep a thread of pyspark from printing a traceback when the JVM is killed.

    It notices first; the call that waits for Spark raises an error as well.
    """
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


@contextlib.contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Turn off the loggers of pyspark and py4j for errors that are raised anyway."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - an extra

    # These must be made as PySparkLogger: pyspark fails on a plain logger of the same name.
    loggers: list[logging.Logger] = [PySparkLogger.getLogger(name) for name in _SPARK_LOGGERS]
    loggers += [logging.getLogger(name) for name in _PY4J_LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _stderr_to(log: IO[bytes]) -> Iterator[None]:
    """Redirect standard error to a file, for this process and those that it starts."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def _not_started(master: str, error: Exception, log: IO[bytes]) -> UnavailableError:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    news = [line for line in lines if line and not _NOISE.match(line)]
    said = "; ".join(news[-_LAST_LINES:]) or reason_of(error)
    message = f"spark does not start with master {master}: {said}; --debug shows all its output"
    return UnavailableError(message)

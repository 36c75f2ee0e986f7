"""A Spark session for a command: started quietly, with our own Python, and ended for certain.

Promises: what is missing (pyspark, Java) is told in one sentence before anything is started; what
the JVM says goes to a file and is shown only if it does not start; an error of Spark comes out as
one of bucketq's, without Java's stack. It is for commands, not for libraries: it changes the
environment and the standard error of the process while the JVM starts.
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

from bucketq.errors import BucketQError, InvalidRequestError, UnavailableError
from bucketq.spark.registration import check_version, register
from bucketq.spark.session.java import find_java
from bucketq.spark.session.master_url import check_answers, check_form, is_connect, is_local
from bucketq.spark.session.worker_python import choose_python, trouble_with_python

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
    # Nobody else is to be served.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    # The work is done in Python; what counts here is that Java is up soon.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_LAST_LINES = 3
_NOISE = re.compile(
    r"at |\.\.\. |WARNING: |Using Spark's|Setting (default|Spark) log|To adjust log|.* WARN Native"
)
"""Lines that every start has, and calls of Java's."""
_SPARK_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_PY4J_LOGGERS = ("py4j.clientserver", "py4j.java_gateway")
_OWN_ERROR = re.compile(r"^bucketq\.errors\.(\w+): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: (\w+)")
_SEVERAL = "_MULTIPLE_FAILURES]"
"""How the name of an error ends that stands for several, which are listed below it."""
_ONE_OF_SEVERAL = re.compile(r"^\d+\. \w+: ")
_BAD_DATA = "22"
"""How SQL's states begin that tell of values that do not suit what is done with them."""


@contextlib.contextmanager
def session(master: str, name: str, *, is_loud: bool = False) -> Iterator[SparkSession]:
    """Start a session with the format ``bucketq``, and stop it in the end."""
    demand_spark(master)
    check_answers(master)
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415 - an extra

    builder = Session.builder.appName(f"bucketq {name}")
    if is_connect(master):
        builder = builder.remote(master)
    else:
        choose_python(os.environ)
        config = _CONFIG | (_LOCAL_CONFIG if is_local(master) else {})
        for key, value in config.items():
            builder = builder.config(key, value)
        builder = builder.master(master)
    quiet = contextlib.nullcontext() if is_loud else _quiet()
    with tempfile.TemporaryFile() as log, spark_errors_told(), quiet:
        with contextlib.nullcontext() if is_loud else _stderr_to(log):
            try:
                spark = builder.getOrCreate()
            except Exception as error:
                raise _not_started(master, error, log) from error
        try:
            if not is_loud and not is_connect(master):
                _hush(spark)
            register(spark)
            yield spark
        finally:
            # One that is gone cannot be stopped, and why the work has ended is told elsewhere.
            with contextlib.suppress(Exception):
                spark.stop()


def demand_spark(master: str) -> None:
    """Raise ``InvalidRequestError`` where the master is none, or a package or Java is missing.

    Spark itself says little of either, and only after some seconds.
    """
    check_form(master)
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


@contextlib.contextmanager
def spark_errors_told() -> Iterator[None]:
    """Let errors of Spark come out as errors of bucketq, in a sentence."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise told(error) from error


def told(error: Exception) -> BucketQError:
    """What an error of Spark means, as one of ours where it began as that."""
    from pyspark.errors import (  # noqa: PLC0415 - an extra
        AnalysisException,
        ParseException,
        PySparkException,
    )

    text = str(error)
    own = _OWN_ERROR.findall(text)
    if own:
        name, message = own[-1]
        kind = {each.__name__: each for each in _family(BucketQError)}.get(name, BucketQError)
        return kind(message)
    if is_gone(error):
        message = "Spark's process has ended in the midst of it: run it again; --debug shows more"
        return UnavailableError(message)
    if python := trouble_with_python(text):
        return UnavailableError(python)
    reason = reason_of(error)
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if found := _STATE.search(reason):
        state = found[1]
    first = _STATE.sub("", _CONDITION.sub("", reason)).rstrip(" ;")
    if isinstance(error, AnalysisException | ParseException):
        return InvalidRequestError(f"spark does not understand it: {first}")
    if state and state.startswith(_BAD_DATA):
        return InvalidRequestError(f"spark cannot do it with these jobs: {first}")
    return UnavailableError(f"spark failed: {first}; run it again, with --debug to see more")


def is_gone(error: Exception) -> bool:
    """Whether an error tells that the process of Spark does not answer any more."""
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - an extra

    return isinstance(error, ConnectionError | Py4JNetworkError)


def reason_of(error: Exception) -> str:
    """What Spark says in a line, without the Java calls that led to it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    if lines and _SEVERAL in lines[0]:
        each = [_ONE_OF_SEVERAL.sub("", line) for line in lines if _ONE_OF_SEVERAL.match(line)]
        lines = each or lines
    return (lines[0] if lines else type(error).__name__).lstrip(": ")


def _family(kind: type[BucketQError]) -> Iterator[type[BucketQError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def _hush(spark: SparkSession) -> None:
    """Let a thread of pyspark's not print a traceback where Spark's process is killed.

    It hears of that first, and what waits for Spark is told of it as well.
    """
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let pyspark and py4j log nothing of what comes out as an error anyway."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - an extra

    # Those of pyspark are of a kind of their own, and it trips over others of their name.
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
    """Send to a file what is written to stderr, also by processes that are started here."""
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
    message = f"spark does not start with master {master}: {said}; --debug shows all it says"
    return UnavailableError(message)

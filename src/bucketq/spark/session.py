"""A Spark session for a command: started quietly, with our own Python, and ended for certain.

Promises: what is missing (pyspark, Java) is told in one sentence before anything is started; what
the JVM says goes to a file and is shown only if it does not start; an error of Spark comes out as
one of bucketq's, without Java's stack. It is for commands, not for libraries: it changes the
environment and the standard error of the process while the JVM starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING

from bucketq.errors import BucketQError, InvalidRequestError, UnavailableError
from bucketq.spark.java import find_java
from bucketq.spark.masters import check_answers, is_connect, is_local
from bucketq.spark.pythons import choose_python, trouble_with_python
from bucketq.spark.register import register

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
_LAST_LINES = 5
_SMALL_TALK = (
    "Using Spark's default log4j",
    "Setting default log level",
    "Setting Spark log level",
    "To adjust logging level",
    "WARNING: Using incubator modules",
)
"""What Spark always says when it starts."""
_OWN_ERROR = re.compile(r"^bucketq\.errors\.(\w+): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z_.]+\]\s*")


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
    with tempfile.TemporaryFile() as log, spark_errors_told():
        with contextlib.nullcontext() if is_loud else _stderr_to(log):
            try:
                spark = builder.getOrCreate()
            except Exception as error:
                raise _not_started(master, error, log) from error
        try:
            register(spark)
            yield spark
        finally:
            # One that is gone cannot be stopped, and why the work has ended is told elsewhere.
            with contextlib.suppress(Exception):
                spark.stop()


def demand_spark(master: str) -> None:
    """Raise ``InvalidRequestError`` where a package or Java is missing."""
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            message = f'this needs Spark, and {module} is missing: pip install "bucketq[spark]"'
            raise InvalidRequestError(message)
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
    except (PySparkException, Py4JError) as error:
        raise told(error) from error


def told(error: Exception) -> BucketQError:
    """What an error of Spark means, as one of ours where it began as that."""
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - an extra

    text = str(error)
    own = _OWN_ERROR.findall(text)
    if own:
        name, message = own[-1]
        kind = {each.__name__: each for each in _family(BucketQError)}.get(name, BucketQError)
        return kind(message)
    if python := trouble_with_python(text):
        return UnavailableError(python)
    first = _CONDITION.sub("", text.strip().partition("\n")[0]) or type(error).__name__
    if isinstance(error, AnalysisException | ParseException):
        return InvalidRequestError(f"spark does not understand it: {first}")
    return UnavailableError(f"spark failed: {first}; run it again, with --debug to see more")


def _family(kind: type[BucketQError]) -> Iterator[type[BucketQError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


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
    news = [line for line in lines if line and not any(talk in line for talk in _SMALL_TALK)]
    said = "; ".join(news[-_LAST_LINES:]) or str(error).partition("\n")[0]
    message = f"spark does not start with master {master}: {said}"
    return UnavailableError(message)

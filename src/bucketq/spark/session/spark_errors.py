"""Turns errors of Spark into errors of bucketq: one sentence, without Java's stack."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from bucketq import errors
from bucketq.errors import BucketQError, InvalidRequestError, UnavailableError
from bucketq.spark.session.worker_python import describe_python_error

_BUCKETQ_ERROR = re.compile(r"^bucketq\.errors\.(\w+): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: (\w+)")
_SEVERAL = "_MULTIPLE_FAILURES]"
"""The end of the name of an error that stands for several, which are listed below it."""
_ONE_OF_SEVERAL = re.compile(r"^\d+\. \w+: ")
_DATA_EXCEPTION = "22"
"""The SQLSTATE class for values that an expression cannot be applied to."""


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors of Spark as errors of bucketq."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise translated(error) from error


def translated(error: Exception) -> BucketQError:
    """Return the error of bucketq that caused an error of Spark, or a new one that describes it."""
    from pyspark.errors import (  # noqa: PLC0415 - an extra
        AnalysisException,
        ParseException,
        PySparkException,
    )

    text = str(error)
    if found := _BUCKETQ_ERROR.findall(text):
        return error_named(*found[-1])
    if is_connection_lost(error):
        message = "Spark's process ended while it was working: run it again; --debug shows more"
        return UnavailableError(message)
    if problem := describe_python_error(text):
        return UnavailableError(problem)
    reason = reason_of(error)
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if match := _SQLSTATE.search(reason):
        state = match[1]
    first = _SQLSTATE.sub("", _CONDITION.sub("", reason)).rstrip(" ;")
    if isinstance(error, AnalysisException | ParseException):
        return InvalidRequestError(f"spark does not understand it: {first}")
    if state and state.startswith(_DATA_EXCEPTION):
        return InvalidRequestError(f"spark cannot do it with these jobs: {first}")
    return UnavailableError(f"spark failed: {first}; run it again, with --debug to see more")


def error_named(name: str, message: str) -> BucketQError:
    """Make an error of bucketq again that came from another process as its name and message."""
    kind = getattr(errors, name, BucketQError)
    is_ours = isinstance(kind, type) and issubclass(kind, BucketQError)
    return kind(message) if is_ours else BucketQError(message)


def is_connection_lost(error: Exception) -> bool:
    """Return whether an error means that Spark's process does not answer any more."""
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - an extra

    return isinstance(error, ConnectionError | Py4JNetworkError)


def reason_of(error: Exception) -> str:
    """Return the line of Spark's message that says what failed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    if lines and _SEVERAL in lines[0]:
        each = [_ONE_OF_SEVERAL.sub("", line) for line in lines if _ONE_OF_SEVERAL.match(line)]
        lines = each or lines
    return (lines[0] if lines else type(error).__name__).lstrip(": ")

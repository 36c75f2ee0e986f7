"""Lets Spark find the format ``bucketq`` by itself.

The first time that a Spark application asks for a format that it does not know, Spark imports every
installed package whose name begins with ``pyspark_``, and registers what each calls
``DefaultSource``. If one of them raises an error, Spark registers none. So this package raises
nothing: without ``bucketq[spark]``, or with a Spark that is too old, it has no ``DefaultSource``.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Import the format when it is asked for."""
    if name != "DefaultSource":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        from bucketq.spark.data_source import BucketQDataSource  # noqa: PLC0415 - pyspark is an extra
    except ImportError as error:
        message = (
            f"the format bucketq cannot be imported ({error}): install bucketq[spark] for this "
            "Python, and Spark 4.0 or newer"
        )
        raise AttributeError(message) from error
    return BucketQDataSource

"""What executors do about their memory before they read or write rows."""

from __future__ import annotations

from pyspark import TaskContext

from bucketq.process_memory import freeze_modules


def exempt_modules() -> None:
    """Exempt modules from garbage collections, if this is called in a task of Spark.

    Spark collects garbage after every task. Modules are most of what it looks at, and that takes
    longer than reading thousands of rows.
    """
    if TaskContext.get() is not None:
        freeze_modules()

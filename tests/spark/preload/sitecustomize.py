"""Lets Spark's Python daemons import what their processes need before they fork them.

A daemon imports next to nothing, since a module might start threads, so each process that it forks
imports PySpark, PyArrow, pandas and bucketq for itself: a third of the CPU time of the tests of
Spark. NumPy and PyArrow do start threads, but these have nothing to do when the daemon forks.

Python imports this at its start in every process that has this folder on its path.
"""

import gc
import sys
from importlib import import_module

_DAEMON = ["-m", "pyspark.daemon"]
_REGISTERS = "pyspark.sql.worker.lookup_data_sources"
"""What a daemon's only process does, once for each JVM; it needs none of what follows."""
_TASKS = "pyspark.worker"
_NEEDED = ("bucketq.spark.data_source", "bucketq.store.local")
"""Not gRPC, which does not survive a fork."""
_NEEDED_BY_TASKS = ("pandas", "pyarrow.compute", "pyspark.sql.worker.plan_data_source_read")

if sys.orig_argv[1:3] == _DAEMON and sys.orig_argv[3] != _REGISTERS:
    _does = sys.orig_argv[3]
    for _module in (_does, *_NEEDED, *(_NEEDED_BY_TASKS if _does == _TASKS else ())):
        import_module(_module)
    gc.freeze()

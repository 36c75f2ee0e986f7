"""Which Python interpreter Spark's driver and executors run, and errors that a wrong one causes.

Spark uses one path on all machines, that of ``PYSPARK_PYTHON``.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from bucketq.spark.session.master_url import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

_VARIABLE = "PYSPARK_PYTHON"
_ADVICE = (
    'install the same version of "bucketq[spark]" for it on the driver and on every executor, or '
    f"set {_VARIABLE} to a Python that has it"
)
_NOT_RUN = re.compile(r'Cannot run program "([^"]+)"')
_MISSING = re.compile(r"ModuleNotFoundError: No module named '((?:bucketq|msgspec|pyarrow)[\w.]*)'")
_MIXED = re.compile(r"worker has different version: ([\d.]+) than that in driver: ([\d.]+)")


def set_python_variables() -> None:
    """Set Spark's variables so that it runs this interpreter, unless they are set already."""
    os.environ.setdefault(_VARIABLE, sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def use_this_python(context: SparkContext) -> None:
    """Let a running Spark in local mode use this interpreter, unless another one is configured.

    By itself it runs the ``python3`` on the path, which may not be that of a virtual environment.
    """
    if not is_local(context.master or "") or _VARIABLE in os.environ:
        return
    if not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable


def describe_python_error(text: str) -> str:
    """Describe an error that Spark had with its Python; empty if the error is about another thing.

    A driver and executors with different versions of bucketq show as a missing module, because
    the classes of readers and writers are pickled by the names of their modules.
    """
    if found := _NOT_RUN.search(text):
        return f"spark cannot run {found[1]}, its Python: {_ADVICE}"
    if found := _MISSING.search(text):
        return f"the Python that Spark runs has no module {found[1]}: {_ADVICE}"
    if found := _MIXED.search(text):
        return (
            f"spark runs Python {found[1]} on executors and {found[2]} on the driver: set "
            f"{_VARIABLE} to a Python that is the same on all of them"
        )
    return ""

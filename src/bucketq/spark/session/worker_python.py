"""The Python that Spark runs, on the driver and on executors: which one, and what is wrong with it.

Spark takes one path for all machines, that of ``PYSPARK_PYTHON``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from bucketq.spark.session.master_url import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

_CHOICE = "PYSPARK_PYTHON"
_ADVICE = (
    'install "bucketq[spark]" for it on the driver and on every executor, or set '
    f"{_CHOICE} to a Python that has it"
)
_NOT_RUN = re.compile(r'Cannot run program "([^"]+)"')
_MISSING = re.compile(r"ModuleNotFoundError: No module named '((?:bucketq|msgspec|pyarrow)[\w.]*)'")
_TWO = re.compile(r"worker has different version: ([\d.]+) than that in driver: ([\d.]+)")


def choose_python(environ: MutableMapping[str, str]) -> None:
    """Let Spark use the Python that runs this, unless somebody has chosen another."""
    environ.setdefault(_CHOICE, sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def use_this_python(context: SparkContext, environ: Mapping[str, str]) -> None:
    """Let a Spark of this machine that is up already run this Python, unless somebody has chosen.

    By itself it runs whatever is called ``python3``, which need not be that of a virtual
    environment.
    """
    if not is_local(context.master or "") or _CHOICE in environ:
        return
    if not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable


def trouble_with_python(text: str) -> str:
    """What an error of Spark says of its Python, in a sentence; empty where it is about others."""
    if found := _NOT_RUN.search(text):
        return f"spark cannot run {found[1]}, its Python: {_ADVICE}"
    if found := _MISSING.search(text):
        return f"the Python that Spark runs has no module {found[1]}: {_ADVICE}"
    if found := _TWO.search(text):
        return (
            f"spark runs Python {found[1]} on executors and {found[2]} on the driver: set "
            f"{_CHOICE} to a Python that is the same on all of them"
        )
    return ""

"""Runs programs that try several things with one Spark, and reports the outcome of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.spark.spark_home import ROOT

_TIMEOUT_S = 800
"""Generous, for a busy machine; it takes a minute on a quiet one."""


def outcomes_of(
    program: str, words: Sequence[str], environ: Mapping[str, str]
) -> Mapping[str, str]:
    """Run a program of this folder; return the error of each thing that it tried, or nothing."""
    ran = subprocess.run(
        [sys.executable, "-m", f"tests.spark.{program}", *words],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    found = {each["name"]: each["wrong"] for each in map(json.loads, ran.stdout.splitlines())}
    missing = f"the program ended before it tried this:\n{ran.stderr[-5000:]}"
    return defaultdict(lambda: missing, found)

"""An archive of the classes that Spark loads: with it a JVM starts with half the work.

The tests start a dozen JVMs and more, so it pays even when it is made for one run. It is kept in
``build`` for the next ones. ``python -m tests.spark.class_data_sharing FILE`` makes one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import pyspark
from pyspark import SparkContext

from bucketq.spark.session.java import find_java
from tests.spark.session import JAVA, PLAIN_PLANS, configured
from tests.spark.spark_home import BUILD, ROOT

_TIMEOUT_S = 120
"""It takes 15 s on two quiet cores. If it takes this long, tests run without it."""


def java_options(environ: Mapping[str, str]) -> str:
    """Options for all JVMs of a run, those that let them start fast."""
    archive = _archive(environ)
    # A JVM that cannot use the archive, like one that only parses a command, would log that.
    return f"{JAVA} -XX:SharedArchiveFile={archive} -Xlog:cds*=off" if archive else JAVA


def _archive(environ: Mapping[str, str]) -> Path | None:
    """Return the archive, and make it if there is none; return None if that fails."""
    java = find_java(environ).resolve()
    of = f"{java} {java.stat().st_mtime_ns} {environ['SPARK_HOME']} {pyspark.__version__}"
    name = blake2b(of.encode(), digest_size=8).hexdigest()
    file = BUILD / f"classes-{name}.jsa"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        # It is made once, even if other processes need it at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            _make(file, environ)
    return file if file.exists() else None


def _make(file: Path, environ: Mapping[str, str]) -> None:
    fresh = file.with_suffix(".part")
    fresh.unlink(missing_ok=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "tests.spark.class_data_sharing", str(fresh)],
            cwd=ROOT,
            env={**os.environ, **environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if fresh.exists():
        fresh.rename(file)


def main(file: str) -> None:
    """Start Spark, use a Python process, and save the classes that were loaded.

    To save those of more kinds of queries takes longer than to load them in one run of the tests.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = f"{JAVA} -XX:ArchiveClassesAtExit={file}"
        builder = configured("local[2]", folder).config("spark.driver.extraJavaOptions", options)
        spark = builder.getOrCreate()
        for setting, value in PLAIN_PLANS.items():
            spark.conf.set(setting, value)
        spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()
        java = SparkContext._gateway
        assert java is not None
        spark.stop()
        # It ends when its input is closed, and writes the archive last.
        java.proc.stdin.close()
        java.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])

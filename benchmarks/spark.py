"""The throughput of bucketq on Spark, compared with plain Spark on the same data.

Run it with ``make bench`` or ``python benchmarks/spark.py``; ``--quick`` takes two minutes, and
``--only sink,jobs`` measures some parts. A session with two cores runs in this process, and queues
and files are on a disk, so each row has a reference: the same rows written or read by plain
Spark in the same run, alternately. The gap is how many times as long bucketq takes, or what it
adds. The parts are in ``spark_tables.py`` and ``spark_streams.py``, which explain each row.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyspark
from benchmarks import spark_streams, spark_tables
from benchmarks.spark_rows import Bench, Part, Row
from pyspark.sql import SparkSession

import bucketq.spark
from bucketq.spark.session.java import find_java

ROOT = Path(__file__).resolve().parents[1]
PARTS: dict[str, Part] = {**spark_tables.PARTS, **spark_streams.PARTS}
JOBS = 100_000
REPEATS = 3
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
}
"""Java's compiler is not limited, unlike in the tests, so that Spark runs at full speed."""


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Start Spark with this Python, and stop it in the end."""
    find_java(os.environ)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    builder = SparkSession.builder.master("local[2]").appName("bucketq benchmark")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    try:
        bucketq.spark.register(spark)
        yield spark
    finally:
        spark.stop()


def show(row: Row) -> None:
    """Print a line of the table."""
    digits = 0 if row.unit.endswith("/s") else 1
    print(
        f"{row.name:<42}{row.ours:>11,.{digits}f}{row.plain:>11,.{digits}f} {row.unit:<8}"
        f"{row.gap:>8.2f}{row.gap_unit:<4}{row.verdict}",
        flush=True,
    )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Measure bucketq on Spark.")
    parser.add_argument("--quick", action="store_true", help="fewer jobs, each row once")
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--jobs", type=int, help=f"how many jobs; {JOBS:,}, or a tenth if quick")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="a folder on a disk")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait for a quiet machine before each run",
    )
    options = parser.parse_args()
    wanted = [name for name in options.only.split(",") if name] or list(PARTS)
    if unknown := sorted(set(wanted) - set(PARTS)):
        parser.error(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    jobs = options.jobs or (JOBS // 10 if options.quick else JOBS)
    repeats = 1 if options.quick else REPEATS
    print(
        f"Spark {pyspark.__version__}, Python {platform.python_version()}, {os.cpu_count()} x "
        f"{platform.machine()}; {jobs:,} jobs; load {os.getloadavg()[0]:.1f}\n"
    )
    with tempfile.TemporaryDirectory(dir=options.dir, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        with session(folder) as spark:
            print(f"{'':<42}{'bucketq':>11}{'plain':>11} {'unit':<8}{'gap':>8}    aim")
            for part in wanted:
                place = folder / part
                place.mkdir()
                for row in PARTS[part](Bench(spark, place, jobs, repeats, options.patience)):
                    show(row)


if __name__ == "__main__":
    main()

"""A program that writes from two executors, each a process, and lets one be killed half way.

``python -m tests.spark.killed_write URL FOLDER``. The rows of one task kill the executor that runs
them, with its JVM, when some of them have been read; the file ``killed`` keeps that to one time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import functions as f

import bucketq.spark
from tests.spark.session import configured

ROWS, PARTS = 400, 4
VICTIM = 250
"""A row in the middle of a task."""


def parent_of(process: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def executor() -> int:
    """The JVM above this Python process."""
    process = os.getpid()
    while "java" not in Path(f"/proc/{process}/exe").resolve().name:
        process = parent_of(process)
    return process


def main(url: str, folder: str) -> None:
    """Write, and lose an executor on the way."""

    def deadly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in range(batch.num_rows):
                yield batch.slice(row, 1)
                mark = Path(folder, "killed")
                if batch.column("id")[row].as_py() == VICTIM and not mark.exists():
                    jvm = executor()
                    mark.write_text(f"{jvm}\n")
                    os.kill(jvm, signal.SIGKILL)

    spark = configured("local-cluster[2,1,1024]", Path(folder)).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    bucketq.spark.register(spark)
    rows = spark.range(ROWS, numPartitions=PARTS).mapInArrow(deadly, "id long")
    # Large enough to be staged in objects, so that the killed task leaves some behind.
    text = f.repeat(f.lit("x"), 20_000)
    jobs = rows.select(f.to_json(f.struct("id", text.alias("text"))).alias("payload"))
    jobs.write.format("bucketq").mode("append").option("kind", "x").save(url)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

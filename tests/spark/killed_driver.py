"""A program that writes a frame until its JVM is killed: ``python -m tests.spark.killed_driver``.

Its arguments are a folder and the address of a queue. It prints the process id of the JVM. One task
of the write finishes, and the other never does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

import bucketq.spark
from tests.spark.session import configured
from tests.spark.table.test_bulk_killed import frame_of, write


def stay(batches: Iterator[Any]) -> Iterator[Any]:
    """Keep the last task waiting, until the process that has started this one is gone."""
    yield from batches
    context, parent = TaskContext.get(), os.getppid()
    while context is not None and context.partitionId() == 1 and os.getppid() == parent:
        time.sleep(0.05)


def main(folder: Path, url: str) -> None:
    """Write."""
    spark = configured("local[2]", folder).getOrCreate()
    bucketq.spark.register(spark)
    jvm: Any = spark.sparkContext._jvm
    sys.stdout.write(f"{jvm.java.lang.ProcessHandle.current().pid()}\n")
    sys.stdout.flush()
    frame = frame_of(spark)
    write(frame.mapInArrow(stay, frame.schema), url)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

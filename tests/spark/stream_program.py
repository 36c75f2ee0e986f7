"""A program that runs a stream, for tests that kill it.

``python -m tests.spark.stream_program MASTER URL FOLDER TRIGGER``. It appends the ids of each batch
to ``FOLDER/batches``, and then stays in the batch for as long as there is a file ``FOLDER/hold``.
Where there is a file ``FOLDER/kill``, a task removes it and kills the executor that it runs in.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import bucketq.spark
from tests.spark.session import configured


def executor() -> int:
    """The JVM above this Python process."""
    process = os.getpid()
    while "java" not in Path(f"/proc/{process}/exe").resolve().name:
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
    return process


def start(spark: SparkSession, url: str, place: Path, trigger: str) -> StreamingQuery:
    """Start the stream; ``now``: until it has taken what there is."""

    def deadly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if (place / "kill").exists():
                (place / "kill").rename(place / "killed")
                os.kill(executor(), signal.SIGKILL)
            yield batch

    def note(frame: DataFrame, number: int) -> None:
        rows = frame.select("id").mapInArrow(deadly, "id string").collect()
        with (place / "batches").open("a") as log:
            log.write(json.dumps([number, sorted(row.id for row in rows)]) + "\n")
        while (place / "hold").exists():
            time.sleep(0.05)

    jobs = spark.readStream.format("bucketq").option("consumer", "c").option("minPartitions", 2)
    stream = jobs.option("maxJobsPerTrigger", 4).load(url).writeStream.foreachBatch(note)
    stream = stream.option("checkpointLocation", str(place / "checkpoint"))
    if trigger == "now":
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=trigger).start()


def main(master: str, url: str, folder: str, trigger: str) -> None:
    """Run the stream until it ends, or until it is killed."""
    spark = configured(master, Path(folder)).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    bucketq.spark.register(spark)
    start(spark, url, Path(folder), trigger).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

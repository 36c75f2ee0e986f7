"""A program that runs streams, for tests that kill it.

``python -m tests.spark.stream_program FOLDER``. ``FOLDER/queues.json`` names the queues. One stream
copies jobs from ``source`` to ``sink``, and does not return batch N before there is a file
``FOLDER/pass-N``. Each of the others has a folder of its own, listed in ``noted``. It appends the
ids of each batch to the file ``batches`` in that folder, and stays in the batch while there is a
file ``hold``. If there is a file ``kill``, a task removes it and kills its executor.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import bucketq.spark
from tests.spark.features import statuses
from tests.spark.session import PLAIN_PLANS, configured

DEADLINE_S = 400
"""Generous: with a load of 28 a query took longer than 150 s."""
A_BATCH = 4
_NO_SECOND_BATCH = "1 hour"
"""A trigger after which a stream commits its first batch, and asks for no other."""


def executor() -> int:
    """The JVM above this Python process."""
    process = os.getpid()
    while "java" not in Path(f"/proc/{process}/exe").resolve().name:
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
    return process


def batches(place: Path) -> list[tuple[int, list[str]]]:
    """Return the batches that a stream has noted so far."""
    log = place / "batches"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(number, ids) for number, ids in map(json.loads, lines)]


def start(spark: SparkSession, url: str, place: Path, trigger: str) -> StreamingQuery:
    """Start a stream that notes its batches; with ``now``, until the queue is empty."""

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
    stream = jobs.option("maxJobsPerTrigger", A_BATCH).load(url).writeStream.foreachBatch(note)
    stream = stream.option("checkpointLocation", str(place / "checkpoint"))
    return _triggered(stream, trigger).start()


def start_copy(
    spark: SparkSession, source: str, sink: str, place: Path, trigger: str
) -> StreamingQuery:
    """Start the stream that copies jobs."""

    def gated(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        gate = place / f"pass-{context.getLocalProperty('streaming.sql.batchId')}"
        while not gate.exists():
            time.sleep(0.02)
        yield from batches

    jobs = spark.readStream.format("bucketq").option("consumer", "c")
    jobs = jobs.option("maxJobsPerTrigger", A_BATCH)
    rows = (
        jobs.load(source).select("kind", "payload").mapInArrow(gated, "kind string, payload string")
    )
    stream = rows.writeStream.format("bucketq").option("path", sink)
    stream = stream.option("checkpointLocation", str(place / "checkpoint-copy"))
    return _triggered(stream, trigger).start()


def _triggered(stream: DataStreamWriter, trigger: str) -> DataStreamWriter:
    if trigger == "now":
        return stream.trigger(availableNow=True)
    return stream.trigger(processingTime=trigger)


def main(folder: Path) -> None:
    """Run the streams until this process is killed."""
    spark = configured("local[2]", folder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for name, value in PLAIN_PLANS.items():
        spark.conf.set(name, value)
    bucketq.spark.register(spark)
    queues = json.loads((folder / "queues.json").read_text())
    source, sink = queues["source"], queues["sink"]
    starts = {source: partial(start_copy, spark, source, sink, folder, "0 seconds")}
    for place, url in queues["noted"].items():
        starts[url] = partial(start, spark, url, Path(place), _NO_SECOND_BATCH)
    queries: dict[str, StreamingQuery] = {}
    while True:
        for url, begin in starts.items():
            while url not in queries or not queries[url].isActive:
                _check(queries.get(url))
                queries[url] = begin()
                while queries[url].isActive and "running" not in statuses(url):
                    time.sleep(0.2)
        time.sleep(0.1)


def _check(query: StreamingQuery | None) -> None:
    """Raise the error that ended a query, unless this machine was too busy.

    Spark gives each of its Python processes ten seconds to start. So queries start one after the
    other here, and one whose process was too slow is started again.
    """
    error = None if query is None else query.exception()
    if error is not None and "failed to connect back" not in str(error):
        raise error


if __name__ == "__main__":
    main(Path(sys.argv[1]))

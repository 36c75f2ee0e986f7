"""The size of micro-batches in real queries, and their metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import bucketq
import bucketq.spark
from bucketq import JobSpec
from bucketq.spark.stream import stream_metrics
from bucketq.spark.stream.stream_metrics import StreamMetrics
from tests.chaos.fleet import wait_until

LARGE = 2_000
"""How many letters the payload of the large job has."""


@pytest.mark.full  # `unit/spark` and `contract` have both parts of it in every run.
def test_batches_end_before_they_have_too_many_bytes_and_a_listener_counts_them(
    spark: SparkSession, file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = list[StreamMetrics]()

    class KeptMetrics(StreamMetrics):
        """Can be removed from the session."""

        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            added.append(self)

    monkeypatch.setattr(stream_metrics, "StreamMetrics", KeptMetrics)
    letters = [300, 300, 300, LARGE, 300]
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.push_many([JobSpec(kind="x", payload="a" * count) for count in letters])
    sizes = list[list[int]]()

    def keep(frame: DataFrame, _: int) -> None:
        rows = sorted(frame.select("seq", "payload_size").collect())
        sizes.append([row.payload_size for row in rows])

    registry = bucketq.spark.export_metrics(spark)
    try:
        source = spark.readStream.format("bucketq").option("consumer", "small")
        stream = source.option("maxBytesPerTrigger", "1k").load(file_url).writeStream
        query = stream.foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

        def value(name: str) -> float | None:
            return registry.get_sample_value(f"bucketq_stream_{name}", {"consumer": "small"})

        # Spark calls listeners from a thread of its own.
        wait_until(lambda: value("jobs_total") == len(letters), 60, "until all were reported")
        assert value("waiting_jobs") == 0
        assert value("payload_bytes_total") == sum(map(sum, sizes))
    finally:
        for listener in added:
            spark.streams.removeListener(listener)
    assert sizes == [[302, 302, 302], [LARGE + 2], [302]]

"""The progress of streams as metrics."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from bucketq.spark import export_metrics
from bucketq.spark.stream.stream_metrics import StreamMetrics


def progress(*offsets: object) -> Any:
    """An event with what some sources have reported."""
    sources = [SimpleNamespace(latestOffset=json.dumps(each)) for each in offsets]
    return SimpleNamespace(progress=SimpleNamespace(sources=sources))


def offset(batch: int, jobs: int, size: int, waiting: int, consumer: str = "c") -> dict[str, Any]:
    return {"consumer": consumer, "batch": batch, "jobs": jobs, "bytes": size, "waiting": waiting}


def test_each_batch_is_counted_once_and_the_lag_is_that_of_the_last() -> None:
    registry = CollectorRegistry()
    listener = StreamMetrics(registry)

    def value(name: str, consumer: str = "c") -> float | None:
        return registry.get_sample_value(f"bucketq_stream_{name}", {"consumer": consumer})

    for event in (
        progress(offset(1, 3, 30, 9), offset(7, 1, 5, 0, "other")),
        progress(offset(2, 2, 20, 7)),
        progress(offset(2, 2, 20, 4)),
    ):
        listener.onQueryProgress(event)
    assert (value("batch"), value("waiting_jobs")) == (2, 4)
    assert (value("jobs_total"), value("payload_bytes_total")) == (5, 50)
    assert (value("batch", "other"), value("jobs_total", "other")) == (7, 1)


def test_sources_of_other_formats_are_left_alone() -> None:
    registry = CollectorRegistry()
    listener = StreamMetrics(registry)
    listener.onQueryProgress(progress(None, 17, {"batch": 1}, "text", [{"consumer": "c"}]))
    listener.onQueryProgress(
        SimpleNamespace(progress=SimpleNamespace(sources=[SimpleNamespace(latestOffset="{no")]))  # type: ignore[arg-type]
    )
    assert not [sample for metric in registry.collect() for sample in metric.samples]


def test_a_session_gets_one_listener_and_its_caller_the_registry() -> None:
    added: list[StreamMetrics] = []
    spark: Any = SimpleNamespace(
        version="4.3.0",
        sparkContext=SimpleNamespace(master="yarn"),
        streams=SimpleNamespace(addListener=added.append),
    )
    registry = export_metrics(spark)
    added[0].onQueryProgress(progress(offset(1, 3, 30, 9)))
    assert registry.get_sample_value("bucketq_stream_jobs_total", {"consumer": "c"}) == 3
    mine = CollectorRegistry()
    assert export_metrics(spark, mine) is mine
    assert len(added) == 2

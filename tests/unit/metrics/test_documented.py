"""The page of metrics lists all of them, with the texts that Prometheus shows."""

from __future__ import annotations

import re

from tests.environ import ROOT
from tests.unit.metrics.all_metrics import (
    Known,
    broker_metrics,
    stream_metrics,
    worker_metrics,
)

_ROW = re.compile(r"^\| `(bucketq_\w+)` \| (\w+) \|[^|]*\| (.+) \|$", re.MULTILINE)


def test_every_metric_is_documented_as_it_is() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    rows = [Known(*row) for row in _ROW.findall(page)]
    known = broker_metrics() + worker_metrics() + stream_metrics()
    assert sorted(rows) == sorted(known)


def test_names_follow_the_conventions_of_prometheus() -> None:
    for metric in broker_metrics() + worker_metrics() + stream_metrics():
        assert (metric.type == "counter") == metric.name.endswith("_total"), metric
        assert metric.text.endswith("."), metric

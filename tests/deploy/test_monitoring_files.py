"""The Grafana dashboard and the alert rules refer to metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.deploy.promql import parse
from tests.environ import ROOT
from tests.unit.metrics.all_metrics import broker_metrics, worker_metrics

FOLDER = ROOT / "deploy" / "monitoring"
SERIES = {name for metric in (*broker_metrics(), *worker_metrics()) for name in metric.series}
_LABELS = re.compile(r"`(\w+)`")
ALERTS = {
    "bucketq_oldest_queued_seconds",
    "bucketq_failed_attempts_total",
    "bucketq_commit_seconds_bucket",
    "bucketq_takeovers_total",
    "bucketq_archive_lag_seconds",
    "bucketq_storage_requests_total",
}
"""What operators are alerted to, among others."""


def labels() -> set[str]:
    """The labels in the page of metrics, and those of Prometheus itself."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    cells = [line.split("|")[3] for line in page.splitlines() if line.startswith("| `bucketq_")]
    return {"instance", "job", "le"} | {name for cell in cells for name in _LABELS.findall(cell)}


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    document = json.loads((FOLDER / "grafana.json").read_text("utf-8"))
    yield from (panel for panel in document["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    targets = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*targets, *(rule["expr"] for rule in rules())]


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_refers_to_metrics_and_labels_that_exist(expression: str) -> None:
    used = parse(expression)
    assert used.metrics <= SERIES
    assert used.labels <= labels()


@pytest.mark.parametrize(
    "wrong", ["sum(bucketq_jobs", "sum(bucketq_jobs))", "rate bucketq_jobs", "sum(1)", "a ~ b", ""]
)
def test_what_is_not_an_expression_is_noticed(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(wrong)


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description"}
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert label in parse(rule["expr"]).labels | {"instance"}, rule
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    assert set().union(*(parse(rule["expr"]).metrics for rule in rules())) >= ALERTS


def test_panels_have_titles_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith(".")
        at = panel["gridPos"]
        cells = {
            (at["x"] + column, at["y"] + line)
            for column in range(at["w"])
            for line in range(at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is in Debian's prometheus")
def test_prometheus_accepts_the_rules() -> None:
    subprocess.run(
        ["promtool", "check", "rules", str(FOLDER / "alerts.yaml")], check=True, timeout=60
    )

"""Charts that begin before the page was started, from what the broker has counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

import bucketq
from bucketq.clock import SystemClock
from bucketq.dashboard.stats_ring import Sample, StatsRing
from bucketq.model.queue_stats import Stats, StatsSample
from bucketq.model.records import BrokerRecord
from tests.dashboard.page_server import serve, served_page
from tests.servers.process import free_ports

NOW = datetime(2026, 2, 15, 12, 0, tzinfo=UTC)
STATS = Stats(
    version=90,
    counts={"mail": {"queued": 1}},
    oldest_queued_s=None,
    bytes=0,
    paused=False,
    paused_kinds=(),
    broker=BrokerRecord(address="h:1", id="b", epoch=7, since=NOW, host="h"),
    keys=0,
    sessions=0,
    pushed=10,
)


def counted(age_s: float, version: int = 1) -> StatsSample:
    return StatsSample(age_s, version, 5, 1, 0, 2, None, None, 100, 10)


def ages(ring: StatsRing, now: datetime = NOW) -> list[float]:
    return [now.timestamp() - sample.at_ms / 1000 for sample in ring.samples()]


def test_what_the_broker_counted_comes_before_what_the_page_counts() -> None:
    ring = StatsRing()
    assert ring.lacks(NOW)
    ring.fill(replace(STATS, samples=(counted(7200), counted(7190), counted(10))), NOW)
    ring.add(STATS, NOW)
    assert ages(ring) == [7200, 7190, 10, 0]
    first = Sample(
        at_ms=round((NOW.timestamp() - 7200) * 1000),
        queued=5,
        running=1,
        done=0,
        dead=2,
        oldest_s=None,
        version=1,
        size_bytes=100,
        delayed=None,
        pushed=10,
        ended=2,
        epoch=7,
    )
    assert ring.samples()[0] == first
    assert not ring.lacks(NOW + timedelta(seconds=2))


def test_only_times_that_the_page_did_not_count_are_filled() -> None:
    ring, later = StatsRing(), NOW + timedelta(seconds=600)
    for second in range(0, 60, 2):
        ring.add(STATS, NOW + timedelta(seconds=second))
    assert ring.lacks(later)
    ring.fill(replace(STATS, samples=tuple(counted(age) for age in range(620, 0, -10))), later)
    ring.add(STATS, later)
    found = ages(ring, later)
    assert found == sorted(found, reverse=True)
    own = [age for age in found if 542 <= age <= 600]
    assert own == [float(age) for age in range(600, 541, -2)], "its own are finer"
    assert [age for age in found if 0 < age < 542] == [float(age) for age in range(540, 0, -10)]
    assert [age for age in found if age > 600] == [620, 610]


def test_a_ring_that_was_filled_stays_bounded_and_keeps_a_day() -> None:
    ring = StatsRing()
    fine = [counted(age) for age in range(3600, 0, -10)]
    coarse = [counted(age) for age in range(86400, 3600, -120)]
    ring.fill(replace(STATS, samples=(*coarse, *fine)), NOW)
    for second in range(0, 7200, 2):
        ring.add(STATS, NOW + timedelta(seconds=second))
    later = NOW + timedelta(seconds=7200)
    found = ages(ring, later)
    assert len(found) <= 300 + 1440
    assert found[0] > 86400 - 7200
    assert max(a - b for a, b in pairwise(found)) <= 130


def test_pages_that_are_open_get_what_was_filled_in() -> None:
    ring, later = StatsRing(), NOW + timedelta(seconds=600)
    ring.add(STATS, NOW)
    sent_ms = ring.last_ms()
    assert ring.samples(after_ms=sent_ms) == []
    ring.fill(replace(STATS, samples=(counted(700), counted(300), counted(10))), later)
    ring.add(STATS, later)
    sent = [later.timestamp() - each.at_ms / 1000 for each in ring.samples(after_ms=sent_ms)]
    assert sent == [300, 10, 0]


def test_a_broker_without_samples_leaves_the_ring_as_it_is() -> None:
    ring = StatsRing()
    ring.fill(STATS, NOW)
    ring.add(STATS, NOW)
    assert ages(ring) == [0]
    assert not ring.lacks(NOW)


def test_a_page_that_is_restarted_shows_what_its_broker_counted(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url, address = (tmp_path / "queue.json").as_uri(), f"bucketq://127.0.0.1:{port}/jobs"
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push_many([bucketq.JobSpec(kind="mail", payload=n) for n in range(3)])
    broker = serve(url, port, tmp_path)
    try:
        with bucketq.connect_sync(address) as queue:
            queue.push("mail", 4)
            assert queue.stats().samples is None, "only those who ask for them get them"
            first, *_ = queue.stats(samples=True).samples or ()
        for _ in range(2):
            began_ms = SystemClock().now().timestamp() * 1000
            with served_page({"jobs": address}) as page:
                found = page.get("/api/q/jobs/stats").json
            assert found["samples"][0][0] < began_ms, "before the page was started"
            assert found["samples"][0][1] == first.queued
            assert found["samples"][-1][1] == 4
            assert found["stats"]["samples"] is None
    finally:
        broker.kill()
        broker.wait()

"""Throughput, error rate and percentiles on the web page, from few files of the archive."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import bucketq
from bucketq.archive.archive_layout import Layout, hour_of
from bucketq.clock import SystemClock
from bucketq.dashboard.finished_sample import MOST_FILES, ArchiveSample, FinishedJob, measure
from bucketq.dashboard.flow_views import POINTS, JobFlow, flow_of, parse_span
from bucketq.dashboard.stats_ring import StatsRing
from bucketq.errors import InvalidRequestError
from bucketq.model.queue_stats import CommitStats, Stats
from bucketq.model.records import JobRecord
from bucketq.store.base import ObjectInfo
from bucketq.store.memory import MemoryStore
from bucketq.store.url import open_store
from tests.dashboard.page_server import served_page

NOW = datetime(2026, 2, 15, 12, 59, tzinfo=UTC)
LAYOUT = Layout("queue/archive/")
STATS = Stats(
    version=1,
    counts={},
    oldest_queued_s=None,
    bytes=0,
    paused=False,
    paused_kinds=(),
    broker=None,
    keys=0,
    sessions=0,
)


class CountingStore(MemoryStore):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        self.asked["get"] += 1
        return await super().get(key, *args, **options)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self.asked["list"] += 1
        async for info in super().list(prefix):
            yield info


def finished(number: int, at: datetime, **fields: Any) -> JobRecord:
    job = JobRecord(
        id=f"j{number:06}",
        seq=number + 1,
        kind="mail",
        status="done",
        payload=msgspec.Raw(b"1"),
        pushed_at=at - timedelta(seconds=10),
        claimed_at=at - timedelta(seconds=4),
        finished_at=at,
        outcome="completed",
        attempt=1,
    )
    return replace(job, **fields)


async def put(store: Any, layout: Layout, version: int, jobs: Sequence[JobRecord]) -> None:
    body = b"".join(msgspec.json.encode(job) + b"\n" for job in jobs)
    await store.put(layout.file_key(hour_of(jobs[0].finished_at or NOW), version, body), body)


def unknown(_at_s: float) -> None:
    return None


def flow(jobs: Sequence[FinishedJob], span_s: int = 3600) -> JobFlow:
    return flow_of(jobs, NOW, span_s, unknown)


async def test_a_look_at_a_large_archive_reads_few_files_and_the_next_only_new_ones() -> None:
    store, files = CountingStore(), 1400
    first = NOW - timedelta(hours=6)
    for version in range(files):  # Fifteen seconds apart.
        at = first + timedelta(seconds=15 * version)
        jobs = [finished(version * 10 + number, at) for number in range(10)]
        await put(store, LAYOUT, version + 1, jobs)
    sample = ArchiveSample()
    found = await sample.read(store, LAYOUT, NOW - timedelta(hours=24), NOW)
    assert store.asked["list"] == 25
    assert store.asked["get"] == found.read_files <= MOST_FILES
    assert found.read_files > MOST_FILES / 3
    assert found.files == files
    # What is left out is made up for, as far as hours go.
    counted = flow(found.jobs, 86400).all
    assert abs(counted.ended - files * 10) < files * 10 * 0.01
    store.asked.clear()
    await put(store, LAYOUT, files + 1, [finished(0, NOW)])
    again = await sample.read(store, LAYOUT, NOW - timedelta(hours=24), NOW)
    assert again.files == files + 1
    assert store.asked["list"] == 2, "hours that are over are listed once"
    assert store.asked["get"] <= 1


async def test_a_small_archive_is_read_as_a_whole() -> None:
    store = CountingStore()
    for version in range(20):
        at = NOW - timedelta(minutes=version)
        await put(store, LAYOUT, 100 - version, [finished(n, at) for n in range(7)])
    found = await ArchiveSample().read(store, LAYOUT, NOW - timedelta(minutes=9), NOW)
    assert (found.files, found.read_files, len(found.jobs)) == (20, 20, 70)
    assert {job.weight for job in found.jobs} == {1.0}
    assert flow(found.jobs).all.ended == 70


async def test_a_large_file_is_kept_in_part_and_counted_as_a_whole() -> None:
    store = CountingStore()
    await put(store, LAYOUT, 1, [finished(n, NOW) for n in range(1234)])
    found = await ArchiveSample().read(store, LAYOUT, NOW - timedelta(minutes=9), NOW)
    assert len(found.jobs) <= 100
    assert flow(found.jobs).all.ended == 1234


def test_percentiles_and_error_rates_are_those_of_the_jobs_in_the_range() -> None:
    jobs = [
        finished(n, NOW, claimed_at=NOW - timedelta(seconds=n), pushed_at=NOW - timedelta(hours=1))
        for n in range(1, 101)
    ]
    jobs += [finished(200, NOW, kind="late", attempt=3, failures=1, lost_leases=1)]
    jobs += [finished(201, NOW, kind="late", attempt=2, failures=2, outcome=None, status="dead")]
    jobs += [finished(202, NOW, kind="due", run_at=NOW - timedelta(seconds=5))]
    jobs += [finished(203, NOW, kind="never", attempt=0, claimed_at=None, outcome="cancelled")]
    jobs += [finished(300, NOW - timedelta(hours=3), kind="old")]
    random.Random(7).shuffle(jobs)
    found = flow(measure(jobs))
    assert found.kinds["mail"].run_s == (50.0, 95.0, 99.0)
    assert found.kinds["mail"].wait_s == (3549.0, 3594.0, 3598.0)
    late = found.kinds["late"]
    assert (late.ended, late.completed, late.dead) == (2, 1, 1)
    assert (late.attempts, late.failed, late.wait_s) == (5, 4, None)
    assert found.kinds["due"].wait_s == (1.0, 1.0, 1.0)
    assert (found.kinds["never"].run_s, found.kinds["never"].attempts) == (None, 0)
    assert "old" not in found.kinds
    assert found.all.ended == 104
    assert len(found.all.by_time) == POINTS


def test_weights_count_in_percentiles() -> None:
    (job,) = measure([finished(1, NOW)])
    rare = replace(job, run_s=100.0)
    common = replace(job, run_s=1.0, weight=30.0)
    assert flow([rare, common]).all.run_s == (1.0, 1.0, 100.0)


def test_what_the_page_has_counted_replaces_estimates() -> None:
    ring, begun = StatsRing(), NOW - timedelta(minutes=5)
    for second in range(0, 301, 2):
        stats = replace(STATS, counts={"mail": {"queued": 0}}, pushed=second * 3)
        ring.add(stats, begun + timedelta(seconds=second))
    jobs = measure(finished(n, NOW - timedelta(minutes=8)) for n in range(40))
    found = flow_of(jobs, NOW, 600, ring.counts_ended()).all.by_time
    assert sum(found[:25]) == 40, "before the page was started, the archive is all there is"
    assert found[31:57] == [30.0] * 26


def test_samples_have_the_latency_of_commits_if_it_is_known() -> None:
    idle = CommitStats(commits=9, conflicts=0, storage_errors=0)
    busy = replace(idle, measured=3, took_s=(0.02, 0.3))
    ring = StatsRing()
    samples = [ring.add(replace(STATS, commit_stats=found), NOW) for found in (None, idle, busy)]
    shown = [(sample.commit_p50_s, sample.commit_p99_s) for sample in samples]
    assert shown == [(None, None), (None, None), (0.02, 0.3)]


def test_only_known_spans_are_read() -> None:
    assert parse_span("") == 600
    with pytest.raises(InvalidRequestError):
        parse_span("1000000")


async def test_a_page_that_was_just_started_shows_the_last_hours(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("fresh", 1)
        for job in await queue.claim("fresh"):
            await queue.complete(job)
        await queue.push("later", 1, delay_s=600)
    now = SystemClock().now()
    location = open_store(url)
    layout = Layout.of(location.store.url, location.key)
    await put(location.store, layout, 7, [finished(1, now - timedelta(hours=5))])
    await location.store.close()
    with served_page({"jobs": url, "far": "bucketq://127.0.0.1:1/jobs"}) as page:
        found = page.get("/api/q/jobs/flow?span=21600").json
        assert {kind: counted["ended"] for kind, counted in found["kinds"].items()} == {
            "mail": 1,
            "fresh": 1,
        }
        assert found["all"]["wait_s"][2] == 6.0
        assert page.get("/api/q/jobs/flow?span=600").json["kinds"].keys() == {"fresh"}
        assert page.get("/api/q/jobs/flow?span=5").status == 400
        assert page.get("/api/q/jobs/stats").json["stats"]["delayed"] == {"later": 1}

"""Pages of jobs that are in segments: the same as of others, and only what is needed is read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.codec import segment_index
from bucketq.model.effects import reads
from bucketq.model.operations import Cancel, Claim, Fail, List, Page, Push, ReadStats, Request
from bucketq.model.queue_stats import Stats
from bucketq.model.segments import Block, SegmentClass, Spill
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, new_job

KINDS = 5


class Twins:
    """A state with segments, and one with the same jobs without."""

    def __init__(self, jobs: int, spills: int) -> None:
        self.flat = State(incarnation="test", created_at=START)
        self.deep = DeepState(State(incarnation="test", created_at=START))
        for start in range(0, jobs, jobs // spills or 1):
            self.both(push(start, min(start + jobs // spills, jobs)))
            written = self.deep.spill("ready", START, jobs // spills)
            assert written is not None
            self.deep.apply(Request(written), START)

    def both(self, request: Request) -> None:
        apply(self.flat, request, START)
        self.deep.apply(request, START)

    def read(self, **query: Any) -> tuple[Page, dict[str, int]]:
        """Read a page, and count what was read of segments for it."""
        self.deep.memory.read.clear()
        for segment in self.deep.state.cold.rows.segments.values():
            segment.index = None
        page = self.deep.apply(Request(List(**query)), START).answer
        counts = {"block": 0, "index": 0, "seqs": 0, "ids": 0}
        for _, what in self.deep.memory.read:
            counts["block" if isinstance(what, Block) else str(what)] += 1
        return page, counts


def push(start: int, stop: int) -> Request:
    jobs = tuple(
        new_job(
            f"job-{number}",
            kind="rare" if number == 777 else f"kind-{number % KINDS}",
            tags={"tens": "yes"} if number % 10 == 0 else {},
        )
        for number in range(start, stop)
    )
    return Request(Push(jobs=jobs))


@pytest.fixture(scope="module")
def twins() -> Twins:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_index, "BLOCK_BYTES", 2000)
        return Twins(6000, 3)


@pytest.mark.parametrize(("after", "segments"), [(0, 1), (1950, 2), (2500, 1), (5990, 1)])
def test_a_page_reads_only_its_own_rows(twins: Twins, after: int, segments: int) -> None:
    page, counts = twins.read(after=after, limit=100)
    assert page == apply(twins.flat, Request(List(after=after, limit=100)), START).answer
    rows = twins.deep.state.cold.rows
    blocks = sum(len(each.index.blocks) for each in rows.segments.values() if each.index)
    assert counts["seqs"] == segments
    assert counts["index"] == segments
    assert counts["ids"] == 0
    # A segment is sorted by kind, so a page has rows of a few blocks for each kind.
    assert counts["block"] <= 3 * KINDS * segments < blocks


def test_all_pages_together_have_every_job_once(twins: Twins) -> None:
    for query in (
        {},
        {"kinds": ("kind-3",)},
        {"kinds": ("rare", "kind-0")},
        {"statuses": ("dead",)},
    ):
        seqs, after = list[int](), 0
        while True:
            page, _ = twins.read(after=after, limit=370, **query)
            expected = apply(twins.flat, Request(List(after=after, limit=370, **query)), START)
            assert page == expected.answer
            seqs += [job.seq for job in page.jobs]
            if page.next_after is None:
                break
            after = page.next_after
        assert seqs == sorted(set(seqs))


def test_jobs_of_a_rare_kind_are_found_by_the_indexes(twins: Twins) -> None:
    page, counts = twins.read(kinds=("rare",), limit=100)
    assert [job.id for job in page.jobs] == ["job-777"]
    assert page.next_after is None
    assert counts == {"index": 3, "seqs": 1, "block": 1, "ids": 0}
    page, counts = twins.read(kinds=("none",), limit=100)
    assert page == Page((), None)
    assert counts == {"index": 3, "seqs": 0, "block": 0, "ids": 0}


def test_a_search_for_a_tag_is_made_in_steps(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_SCAN_JOBS", 500)
    found, after, pages = list[str](), 0, 0
    while True:
        page, _ = twins.read(tags={"tens": "yes"}, after=after, limit=100)
        found += [job.id for job in page.jobs]
        pages += 1
        assert len(page.jobs) <= 51
        if page.next_after is None:
            break
        assert page.next_after > after
        after = page.next_after
    assert found == [f"job-{number}" for number in range(0, 6000, 10)]
    assert pages >= 6000 // 501
    page, counts = twins.read(tags={"tens": "no"}, limit=100)
    assert page == Page((), 500)
    assert counts["seqs"] == 1


def test_jobs_of_the_object_are_in_their_places_of_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reads, "_SCAN_JOBS", 7)
    twins = Twins(200, 4)
    for number in range(40):
        twins.both(Request(Claim(worker="w", secret=SECRET, limit=1), "s", number * 2 + 1))
    job = next(iter(twins.flat.running))
    lease = twins.flat.jobs.by_id[job].lease or ""
    twins.both(Request(Fail(job=job, lease=lease, error="e", retry=False), "s", 1000))
    for limit in (1, 2, 5, 100):
        found, after = list[int](), 0
        while True:
            query = List(tags={"tens": "yes"}, after=after, limit=limit)
            page = twins.deep.apply(Request(query), START).answer
            found += [job.seq for job in page.jobs]
            if page.next_after is None:
                break
            after = page.next_after
        everything = apply(twins.flat, Request(List(tags={"tens": "yes"}, limit=1000)), START)
        assert found == [job.seq for job in everything.answer.jobs]


@pytest.mark.parametrize("kinds", [(), ("kind-1", "kind-2")])
def test_rows_that_have_left_are_not_listed_if_segments_overlap(kinds: tuple[str, ...]) -> None:
    twins = Twins(0, 1)
    twins.both(push(0, 300))
    for rest in range(3):
        spill = twins.deep.spill("ready", START, 300)
        assert spill is not None
        jobs = [job for job in spill.jobs if job.seq % 3 == rest]
        written = twins.deep.written(twins.deep.write("ready", jobs), START)
        twins.deep.apply(Request(Spill(segment=written, jobs=tuple(jobs))), START)
    for number in range(0, 300, 7):
        twins.both(Request(Cancel(job=f"job-{number}"), "s", number + 1))
    for after in range(0, 300, 11):
        query = List(statuses=("queued",), kinds=kinds, after=after, limit=20)
        expected = apply(twins.flat, Request(query), START).answer
        assert twins.deep.apply(Request(query), START).answer == expected


def test_delayed_jobs_are_counted_by_kind_in_the_object_and_in_segments() -> None:
    deep = DeepState(State(incarnation="test", created_at=START))
    jobs = tuple(
        new_job(f"job-{number}", kind="ab"[number % 2], delay_s=float(number))
        for number in range(12)
    )
    deep.apply(Request(Push(jobs=jobs)), START)
    assert delayed(deep, 0) == {"a": 5, "b": 6}
    written = deep.spill("later", START, 100)
    assert written is not None
    deep.apply(Request(written), START)
    deep.apply(Request(Push(jobs=(new_job("hot", kind="c", delay_s=60.0),))), START)
    assert delayed(deep, 0) == {"a": 5, "b": 6, "c": 1}
    deep.apply(Request(Cancel(job="job-11")), START)
    assert delayed(deep, 0) == {"a": 5, "b": 5, "c": 1}
    # A claim moves those that are due; without one, the times of the segment decide.
    claimed = deep.apply(Request(Claim(worker="w", kinds=("a",), secret=SECRET)), at(4)).answer
    assert [job.id for job in claimed] == ["job-0"]
    assert delayed(deep, 4) == {"a": 3, "b": 3, "c": 1}
    assert delayed(deep, 59) == {"c": 1}
    assert delayed(deep, 60) == {}


def test_the_oldest_waiting_job_in_segments_is_found_after_others_have_left() -> None:
    deep = DeepState(State(incarnation="test", created_at=START))
    for number in range(12):
        pushed = Push(jobs=(new_job(f"job-{number}", kind="ba"[number % 2]),))
        deep.apply(Request(pushed), at(number))
    written = deep.spill("ready", at(12), 100)
    assert written is not None
    deep.apply(Request(written), at(12))
    for number in range(11):
        oldest: Stats = deep.apply(Request(ReadStats()), at(100)).answer
        assert oldest.oldest_queued_s == 100 - number
        deep.apply(Request(Cancel(job=f"job-{number}")), at(13))


def test_a_sample_reads_nothing_and_counts_all() -> None:
    deep = DeepState(State(incarnation="test", created_at=START))
    deep.apply(Request(Push(jobs=tuple(new_job(f"now-{n}") for n in range(5)))), at(0))
    later = tuple(new_job(f"later-{n}", delay_s=60.0) for n in range(3))
    deep.apply(Request(Push(jobs=later)), at(1))
    known = reads.sample(deep.state, at(9))
    assert (known.queued, known.delayed, known.oldest_queued_s) == (8, 3, 9.0)
    classes: tuple[SegmentClass, ...] = ("ready", "later")
    for each in classes:
        written = deep.spill(each, at(2), 100)
        assert written is not None
        deep.apply(Request(written), at(2))
    deep.reload()
    assert deep.state.cold.unread
    cold = reads.sample(deep.state, at(9))
    assert deep.state.cold.unread, "indexes are left as they are"
    assert (cold.queued, cold.delayed, cold.oldest_queued_s) == (8, None, None)
    deep.apply(Request(ReadStats()), at(9))
    assert replace(reads.sample(deep.state, at(9)), bytes=0) == replace(known, bytes=0)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def delayed(deep: DeepState, seconds: float) -> dict[str, int]:
    found: Stats = deep.apply(Request(ReadStats()), at(seconds)).answer
    return found.delayed

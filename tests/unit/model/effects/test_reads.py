"""What can be read: a job, a page, the numbers, everything. Nothing changes by it."""

from typing import Any

import pytest

from bucketq.codec import segment_index
from bucketq.errors import InvalidRequestError, JobNotFoundError, UnavailableError
from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Get,
    List,
    Page,
    Pause,
    ReadSnapshot,
    ReadStats,
    Request,
)
from bucketq.model.records import BrokerRecord
from bucketq.model.results import Wait
from bucketq.model.segments import Block
from bucketq.model.transitions import apply
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import START, Driver


@pytest.fixture
def queue() -> Driver:
    """Seven jobs: two wait, one runs, two are done, two are dead."""
    queue = Driver()
    queue.push("done", "a")
    queue.complete(queue.claim_one())
    queue.kill("dead1", "dead2")
    queue.push("running", "b", tags={"team": "red", "size": "s"})
    queue.claim()
    queue.push("cancelled", "a")
    queue.ok(Cancel(job="cancelled"))
    queue.push("w1", "a", tags={"team": "red", "size": "l"}, priority=5)
    queue.push("w2", "b", delay_s=100.0)
    return queue


@pytest.mark.parametrize(
    "operation",
    [Get(job="w1"), List(), ReadStats(), ReadSnapshot(), Wait(job="w1"), Wait(job="done")],
)
def test_reading_changes_nothing_and_is_not_remembered(
    queue: Driver, operation: AnyOperation
) -> None:
    queue.commit()
    assert queue.send(operation, "s", number=1).changes == []
    assert len(queue.state.sessions) == 0
    assert not queue.state.has_changes


def test_a_job_is_read_by_its_id(queue: Driver) -> None:
    assert queue.ok(Get(job="running")) == queue.job("running")
    assert "'j9'" in queue.refused(Get(job="j9"), JobNotFoundError)


def test_a_wait_reads_how_a_job_ended_if_it_is_over(queue: Driver) -> None:
    for job_id in ("w1", "w2", "running"):
        assert queue.ok(Wait(job=job_id, wait_s=5.0)) is None
    for job_id, outcome in (("done", "completed"), ("cancelled", "cancelled"), ("dead1", None)):
        end, job = queue.ok(Wait(job=job_id)), queue.job(job_id)
        assert (end.id, end.seq, end.status, end.outcome) == (job.id, job.seq, job.status, outcome)
        assert (end.result, end.error) == (job.result, job.errors[-1] if job.errors else None)
    assert "'j9'" in queue.refused(Wait(job="j9"), JobNotFoundError)
    queue.refused(Wait(job="w1", wait_s=-1.0), InvalidRequestError)


def ids(page: Page) -> list[str]:
    return [job.id for job in page.jobs]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["done", "dead1", "dead2", "running", "cancelled", "w1", "w2"]),
        ({"statuses": ("queued",)}, ["w1", "w2"]),
        ({"statuses": ("dead", "running")}, ["dead1", "dead2", "running"]),
        ({"kinds": ("a",)}, ["done", "cancelled", "w1"]),
        ({"kinds": ("a", "b"), "statuses": ("queued",)}, ["w1", "w2"]),
        ({"tags": {"team": "red"}}, ["running", "w1"]),
        ({"tags": {"team": "red", "size": "l"}}, ["w1"]),
        ({"tags": {"team": ""}}, []),
        ({"kinds": ("never",)}, []),
    ],
)
def test_a_list_holds_what_its_filters_allow(
    queue: Driver, filters: dict[str, Any], expected: list[str]
) -> None:
    page = queue.ok(List(**filters))
    assert (ids(page), page.next_after) == (expected, None)


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
@pytest.mark.parametrize("statuses", [(), ("queued", "done")])
def test_pages_hold_every_job_once(queue: Driver, limit: int, statuses: tuple[()]) -> None:
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = queue.ok(List(limit=limit, after=after, statuses=statuses))
        assert 1 <= len(page.jobs) <= limit
        found += ids(page)
        after = page.next_after
    assert found == ids(queue.ok(List(statuses=statuses)))


def test_pages_continue_across_blocks() -> None:
    queue = Driver()
    queue.push_many(*(f"j{number}" for number in range(300)))
    for after in (0, 1, 62, 63, 64, 65, 127, 128, 299, 300, 2**62):
        page = queue.ok(List(after=after, limit=1000))
        assert [job.seq for job in page.jobs] == list(range(after + 1, 301))


def test_an_empty_queue_has_an_empty_page_and_no_numbers() -> None:
    queue = Driver()
    assert queue.ok(List()) == Page((), None)
    stats = queue.ok(ReadStats())
    assert (stats.counts, stats.oldest_queued_s, stats.total("queued")) == ({}, None, 0)


def test_stats_count_by_kind_and_status(queue: Driver) -> None:
    stats = queue.ok(ReadStats())
    assert stats.counts == {
        "a": {"done": 2, "queued": 1},
        "b": {"queued": 1, "running": 1},
        "doomed": {"dead": 2},
    }
    assert [stats.total(s) for s in ("queued", "running", "done", "dead")] == [2, 1, 2, 2]


def test_stats_include_how_long_the_oldest_job_has_waited() -> None:
    queue = Driver()
    queue.push("j1")
    queue.wait(5)
    queue.push("j2")
    queue.wait(5)
    assert queue.ok(ReadStats()).oldest_queued_s == 10
    queue.claim()
    assert queue.ok(ReadStats()).oldest_queued_s == 5


def test_stats_include_the_rest(queue: Driver) -> None:
    queue.push("keyed", key="k")
    queue.ok(Pause(), "s", number=1)
    queue.ok(Pause(kind="b"))
    queue.ok(Pause(kind="a"))
    queue.state.broker = BrokerRecord("10.0.0.1:3000", "b1", 2, START)
    queue.commit()
    stats = queue.ok(ReadStats())
    assert (stats.version, stats.keys, stats.sessions) == (1, 1, 1)
    assert (stats.paused, stats.paused_kinds) == (True, ("b", "a"))
    assert stats.broker == queue.state.broker
    assert stats.bytes == queue.state.size_bytes > 0


def test_a_snapshot_holds_everything(queue: Driver) -> None:
    queue.ok(Pause(kind="b"))
    queue.commit()
    snapshot = queue.ok(ReadSnapshot())
    assert snapshot.jobs == tuple(queue.state.jobs)
    assert (snapshot.version, snapshot.incarnation, snapshot.at) == (1, "test", queue.now)
    assert snapshot.settings == queue.state.settings
    assert (snapshot.paused, snapshot.paused_kinds) == (False, ("b",))


def test_a_snapshot_stays_as_it_was(queue: Driver) -> None:
    snapshot = queue.ok(ReadSnapshot())
    queue.push("later")
    queue.ok(Cancel(job="w1"))
    assert "later" not in {job.id for job in snapshot.jobs}
    assert {job.id: job.status for job in snapshot.jobs}["w1"] == "queued"


def test_a_snapshot_asks_for_all_indexes_and_then_for_all_rows_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_index, "BLOCK_BYTES", 500)
    queue = Driver()
    deep = DeepState(queue.state)
    queue.push_many(*(f"j{number}" for number in range(400)))
    for _ in range(4):
        spill = deep.spill("ready", START, 90)
        assert spill is not None
        deep.apply(Request(spill), START)
    first = min(queue.state.cold.rows.segments.values(), key=lambda each: each.record.seq)
    queue.state.cold.rows.leave_below(first, 50)
    expected = [job.id for job in deep.jobs()]
    assert len(expected) == 350
    deep.reload()
    deep.memory.read.clear()
    asked: list[list[SegmentPart]] = []
    while True:
        try:
            jobs = apply(deep.state, Request(ReadSnapshot()), START).result().jobs
        except ColdRowsNeededError as needed:
            asked.append(needed.parts)
            deep.memory.fetch(needed.parts)
        else:
            break
    assert [job.id for job in jobs] == expected
    assert [{type(what) for _, what in parts} for parts in asked] == [{str}, {Block}]
    blocks = [(segment.id, what) for segment, what in asked[1] if isinstance(what, Block)]
    assert len(blocks) > 20
    assert all(block.stop > 50 for name, block in blocks if name == first.record.id)


def test_a_queue_with_a_damaged_segment_has_pages_but_no_snapshot() -> None:
    queue = Driver()
    deep = DeepState(queue.state)
    queue.push_many(*(f"j{number}" for number in range(20)))
    for _ in range(2):
        spill = deep.spill("ready", START, 8)
        assert spill is not None
        deep.apply(Request(spill), START)
    damaged = next(iter(queue.state.cold.rows.segments))
    deep.memory.damaged.add(damaged)
    with pytest.raises(UnavailableError, match=rf"{damaged}.*doctor --deep"):
        deep.apply(Request(ReadSnapshot()), START).result()
    assert len(deep.apply(Request(List()), START).result().jobs) == 12

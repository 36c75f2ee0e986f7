"""Pushes whose rows were put in segments: the same jobs, and each of them in one place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, KeyConflictError, QueueFullError
from bucketq.model.base import NewJob
from bucketq.model.effects.pushes import may_grant
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import Cancel, Claim, Complete, Configure, List, Push, Request
from bucketq.model.segments import Merge
from bucketq.model.state import State
from bucketq.model.transitions import Applied
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, new_job

NOW = START + timedelta(seconds=1)


class Deep(DeepState):
    """A queue, and short words for what tests do."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__(State(incarnation="test", created_at=START))

    def do(self, operation: Any) -> Any:
        """Apply an operation that must be granted."""
        applied = self.apply(Request(operation), NOW)
        assert applied.error is None, applied.error
        return applied.answer

    def request(self, *jobs: NewJob, number: int = 0, size: int = 100) -> Request:
        """Return a push whose rows were written."""
        return self.write_push(Request(Push(jobs=jobs), "session", number), NOW, size)

    def push(self, *jobs: NewJob, number: int = 0, size: int = 100) -> Applied:
        """Push jobs whose rows were written."""
        return self.apply(self.request(*jobs, number=number, size=size), NOW)

    def claim(self) -> list[str]:
        """Claim a job."""
        return [job.id for job in self.do(Claim(worker="w", secret=SECRET))]

    def numbers(self) -> dict[str, int]:
        """The number of each job; fails if one is in two places."""
        return {job.id: job.seq for job in self.jobs()}

    def written_merge(self) -> Merge:
        """Write a merge of all segments that is not named yet."""
        written = self.merge("ready", NOW, 9)
        assert written is not None
        return written


THREE = tuple(new_job(f"j{number}") for number in range(3))


def test_the_object_holds_no_row_of_the_push() -> None:
    deep = Deep()
    assert deep.push(*THREE).answer == ("j0", "j1", "j2")
    assert list(deep.state.jobs) == []
    assert deep.numbers() == {"j0": 1, "j1": 2, "j2": 3}
    assert (deep.state.next_seq, deep.state.added_bytes) == (4, 0)
    assert deep.state.counts == {("index", "queued"): 3}
    deep.reload()
    assert [job.id for job in deep.do(List(limit=9)).jobs] == ["j0", "j1", "j2"]
    assert {job.pushed_at for job in deep.jobs()} == {NOW}
    assert [deep.claim() for _ in range(4)] == [["j0"], ["j1"], ["j2"], []]
    assert not deep.state.cold.rows.segments


def test_jobs_are_claimed_in_the_order_of_pushes_wherever_they_are() -> None:
    deep = Deep()
    deep.do(Push(jobs=(new_job("a"),)))
    deep.push(new_job("b"), new_job("c", priority=-1), size=1)
    deep.do(Push(jobs=(new_job("d"),)))
    deep.push(new_job("e"), number=1)
    assert [deep.claim() for _ in range(5)] == [["c"], ["a"], ["b"], ["d"], ["e"]]


def test_a_job_with_a_delay_goes_to_the_object_and_one_with_a_time_to_a_segment() -> None:
    deep = Deep()
    at = NOW + timedelta(seconds=100)
    deep.push(new_job("a"), new_job("b", delay_s=50), new_job("c", run_at=at), new_job("d"))
    assert [job.id for job in deep.state.jobs] == ["b"]
    assert deep.numbers() == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert [deep.claim() for _ in range(3)] == [["a"], ["d"], []]
    later = deep.apply(Request(Claim(worker="w", secret=SECRET, limit=5)), at)
    assert [job.id for job in later.answer] == ["b", "c"]


def test_jobs_that_are_known_are_gone_from_the_segment() -> None:
    deep = Deep()
    deep.do(Push(jobs=(new_job("j1"), new_job("x", key="k1"))))
    applied = deep.push(*THREE, new_job("y", key="k1"))
    assert applied.answer == ("j0", "j1", "j2", "x")
    assert deep.numbers() == {"j1": 1, "x": 2, "j0": 3, "j2": 5}
    (segment,) = deep.state.cold.rows.segments.values()
    assert (segment.live, segment.gone.ranges) == (2, ((1, 1), (3, 3)))
    assert deep.state.counts == {("index", "queued"): 4}


def test_a_segment_without_a_new_job_is_not_named() -> None:
    deep = Deep()
    deep.do(Push(jobs=THREE))
    changes = len(deep.state.changes)
    assert deep.push(*THREE).answer == ("j0", "j1", "j2")
    assert not deep.state.cold.rows.segments
    assert (len(deep.state.changes), deep.state.next_seq) == (changes, 4)


def test_keys_and_answers_are_remembered_as_for_other_pushes() -> None:
    deep = Deep()
    request = deep.request(new_job("a", key="k1"))
    assert deep.apply(request, NOW).answer == ("a",)
    assert deep.apply(request, NOW).answer == ("a",), "the retry of a push that was applied"
    assert deep.push(new_job("b", key="k1"), number=1).answer == ("a",)
    conflict = deep.push(new_job("c", "other", key="k1"), number=2)
    assert isinstance(conflict.error, KeyConflictError)
    other = deep.write_push(Request(Push(jobs=THREE), "session", 0), NOW)
    assert isinstance(deep.apply(other, NOW).error, InvalidRequestError)
    assert deep.numbers() == {"a": 1}


def test_a_batch_that_was_published_is_not_published_again() -> None:
    deep = Deep()
    publish = Request(Publish(writer="w", batch=1, jobs=THREE), "session", 0)
    again = replace(publish, number=1)
    assert deep.apply(deep.write_push(publish, NOW), NOW).answer is True
    assert deep.apply(deep.write_push(again, NOW), NOW).answer is False
    assert deep.numbers() == {"j0": 1, "j1": 2, "j2": 3}


def test_limits_hold_and_are_those_of_the_moment_of_the_commit() -> None:
    deep = Deep()
    request = deep.request(*THREE)
    deep.do(Configure(changes={"max_jobs": 2}))
    assert isinstance(deep.apply(request, NOW).error, QueueFullError)
    deep.do(Configure(changes={"max_jobs": 10, "max_batch_jobs": 2}))
    assert isinstance(deep.apply(request, NOW).error, InvalidRequestError)
    assert not deep.state.cold.rows.segments
    deep.do(Configure(changes={"max_batch_jobs": 3}))
    assert deep.apply(request, NOW).answer == ("j0", "j1", "j2")


@pytest.mark.parametrize("reason", ["too late", "named", "format"])
def test_rows_of_a_segment_that_may_not_be_named_go_to_the_object(reason: str) -> None:
    deep = Deep()
    first, second = deep.request(*THREE[:2]), deep.request(*THREE[:2], number=1)
    if reason == "too late":
        deep.state.version += 2
    elif reason == "format":
        deep.do(Configure(changes={"max_format": 1}))
    else:
        deep.apply(first, NOW)
        (job,) = deep.do(Claim(worker="w", secret=SECRET))
        deep.do(Complete(job=job.id, lease=job.lease or ""))
        # It was archived, and its id may be used again.
        deep.state.remove_archived([deep.state.jobs.by_id["j0"]])
    assert deep.apply(second, NOW).answer == ("j0", "j1")
    hot = {"named": ["j0"]}.get(reason, ["j0", "j1"])
    assert [job.id for job in deep.state.jobs] == hot
    assert sorted(deep.numbers()) == ["j0", "j1"]


def test_after_a_lost_race_the_same_segment_is_named_with_other_numbers() -> None:
    deep = Deep()
    request = deep.request(*THREE)
    (written,) = (request.written or pytest.fail("nothing was written")).segments
    lost = Deep()
    lost.memory = lost.state.cold.rows.cache = deep.memory
    lost.apply(request, NOW)
    assert lost.claim() == ["j0"], "its rows were decoded with numbers that are never committed"
    deep.do(Push(jobs=(new_job("x"), new_job("y"))))
    deep.apply(request, NOW + timedelta(seconds=5))
    assert [*deep.state.cold.rows.segments] == [written.record.id]
    assert deep.numbers() == {"x": 1, "y": 2, "j0": 3, "j1": 4, "j2": 5}
    assert [job.seq for job in deep.do(List(limit=9)).jobs] == [1, 2, 3, 4, 5]
    assert {job.pushed_at for job in deep.do(List(after=2)).jobs} == {NOW + timedelta(seconds=5)}


def test_a_merge_that_has_read_other_numbers_is_given_up() -> None:
    deep, lost = Deep(), Deep()
    request = deep.request(*THREE)
    lost.memory = lost.state.cold.rows.cache = deep.memory
    lost.apply(request, NOW)
    merge = lost.written_merge()
    deep.do(Push(jobs=(new_job("x"),)))
    deep.apply(request, NOW)
    assert deep.do(merge) == 0
    assert deep.numbers() == {"x": 1, "j0": 2, "j1": 3, "j2": 4}
    assert deep.do(deep.written_merge()) == 1
    assert deep.numbers() == {"x": 1, "j0": 2, "j1": 3, "j2": 4}


def test_a_segment_with_numbers_of_a_push_that_was_lost_is_given_up() -> None:
    deep, lost = Deep(), Deep()
    lost.memory = lost.state.cold.rows.cache = deep.memory
    for each in (deep, lost):
        each.push(*THREE)
        each.do(Push(jobs=(new_job("x"),)))
    lost.push(new_job("y"), number=1)
    lost.do(Push(jobs=(new_job("z"),)))
    merge, spill = lost.written_merge(), lost.spill("ready", NOW, 9)
    assert spill is not None
    assert (deep.do(merge), deep.do(spill)) == (0, 0)
    deep.reload()
    assert deep.numbers() == {"j0": 1, "j1": 2, "j2": 3, "x": 4}


def test_a_merge_makes_ordinary_rows_of_a_push() -> None:
    deep = Deep()
    deep.push(*THREE)
    deep.do(Push(jobs=(new_job("x"),)))
    spill = deep.spill("ready", NOW, 1)
    assert spill is not None
    deep.do(spill)
    deep.do(Cancel(job="j1"))
    before = deep.jobs()
    assert deep.do(deep.written_merge()) == 2
    (segment,) = deep.state.cold.rows.segments.values()
    assert (segment.record.base, segment.record.pushed_at, segment.live) == (0, None, 3)
    assert deep.jobs() == before
    assert [deep.claim() for _ in range(4)] == [["j0"], ["j2"], ["x"], []]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Push(jobs=THREE), True),
        (Push(jobs=(*THREE, THREE[0])), False),
        (Push(jobs=tuple(new_job(f"n{number}") for number in range(9))), False),
        (Publish(writer="w", batch=2, jobs=THREE), True),
        (Publish(writer="w", batch=1, jobs=THREE), False),
        (Publish(writer="", batch=2, jobs=THREE), False),
    ],
)
def test_nothing_is_put_for_a_push_that_is_refused(operation: Any, expected: bool) -> None:
    deep = Deep()
    deep.do(Configure(changes={"max_jobs": 8}))
    deep.do(Publish(writer="w", batch=1, jobs=(new_job("x"),)))
    assert may_grant(deep.state, operation, Request(operation)) is expected

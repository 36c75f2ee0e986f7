"""Naming segments: every row stays in one place, whatever happened since they were written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketq.errors import QueueFullError, RejectedError
from bucketq.model.operations import Cancel, Claim, Configure, Push, Request
from bucketq.model.segments import ForgetFormer, Merge, NameVector, Spill, Stretch
from bucketq.model.state import State
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, new_job

NOW = START + timedelta(seconds=1)


class Deep(DeepState):
    """A queue with three jobs, and short words for what tests do."""

    def __init__(self) -> None:
        """Push three jobs."""
        super().__init__(State(incarnation="test", created_at=START))
        self.do(Push(jobs=tuple(new_job(f"j{number}") for number in (1, 2, 3))))

    def do(self, operation: Any) -> Any:
        """Apply an operation that must be granted."""
        applied = self.apply(Request(operation), NOW)
        assert applied.error is None, applied.error
        return applied.answer

    def claim(self) -> list[str]:
        """Claim a job."""
        return [job.id for job in self.do(Claim(worker="w", secret=SECRET))]

    def written_spill(self, count: int = 3) -> Spill:
        """Write a spill that is not named yet."""
        written = self.spill("ready", NOW, count)
        assert written is not None
        return written

    def written_merge(self, count: int = 9) -> Merge:
        """Write a merge that is not named yet."""
        written = self.merge("ready", NOW, count)
        assert written is not None
        return written

    def statuses(self) -> dict[str, str]:
        """The status of every job; fails if one is in two places."""
        return {job.id: job.status for job in self.jobs()}


QUEUED = {"j1": "queued", "j2": "queued", "j3": "queued"}


def test_a_spill_moves_jobs_and_claims_take_them_from_there_in_order() -> None:
    deep = Deep()
    assert deep.do(deep.written_spill()) == 3
    assert list(deep.state.jobs) == []
    assert deep.statuses() == QUEUED
    assert [deep.claim() for _ in range(4)] == [["j1"], ["j2"], ["j3"], []]
    assert not deep.state.cold.rows.segments, "a segment without rows is dropped"


def test_jobs_in_segments_count_towards_the_limits() -> None:
    deep = Deep()
    spill = deep.written_spill()
    deep.do(spill)
    size_bytes = spill.segment.record.bytes
    assert deep.state.cold.rows.live_bytes == pytest.approx(size_bytes, abs=3)
    push = Push(jobs=(new_job("j4"),))
    for setting, value in (("max_bytes", size_bytes), ("max_jobs", 3)):
        deep.do(Configure(changes={setting: value}))
        deep.state.size_bytes = deep.state.added_bytes = 0
        applied = deep.apply(Request(push), NOW)
        assert isinstance(applied.error, QueueFullError)
        assert setting in str(applied.error)
        deep.do(Configure(changes={setting: 10**6}))
    deep.do(Configure(changes={"max_bytes": size_bytes}))
    assert [deep.claim(), deep.claim()] == [["j1"], ["j2"]]
    deep.do(push)
    assert deep.state.cold.rows.live_bytes == pytest.approx(size_bytes / 3, abs=3)


def test_a_job_claimed_since_is_gone_from_the_spill() -> None:
    deep = Deep()
    spill = deep.written_spill()
    assert deep.claim() == ["j1"]
    assert deep.do(spill) == 2
    assert deep.statuses() == QUEUED | {"j1": "running"}
    assert [deep.claim() for _ in range(3)] == [["j2"], ["j3"], []]


def test_a_spill_that_was_named_is_not_named_again_with_jobs_that_are_cold() -> None:
    deep = Deep()
    first, second = deep.written_spill(), deep.written_spill(2)
    assert deep.do(first) == 3
    assert deep.do(first) == 0
    assert deep.do(second) == 0
    assert deep.statuses() == QUEUED


def test_a_job_claimed_since_is_gone_from_the_merge() -> None:
    deep = Deep()
    deep.do(deep.written_spill(2))
    deep.do(deep.written_spill(1))
    merge = deep.written_merge()
    assert deep.claim() == ["j1"]
    assert deep.do(Cancel(job="j3")) == "cancelled"
    assert deep.do(merge) == 1, "the segment of j3 has no rows any more"
    assert deep.statuses() == {"j1": "running", "j2": "queued", "j3": "done"}
    assert [deep.claim() for _ in range(2)] == [["j2"], []]


def test_of_two_mergers_of_the_same_segments_one_is_given_up() -> None:
    deep = Deep()
    deep.do(deep.written_spill(2))
    deep.do(deep.written_spill(1))
    both, one = deep.written_merge(), deep.written_merge(1)
    assert deep.do(both) == 2
    assert deep.do(one) == 0
    assert deep.do(both) == 0
    assert deep.statuses() == QUEUED
    assert len(deep.state.cold.rows.segments) == 1


def test_a_merge_keeps_what_only_some_of_its_sources_still_hold() -> None:
    deep = Deep()
    deep.do(deep.written_spill(2))
    deep.do(deep.written_spill(1))
    assert deep.claim() == ["j1"]
    one, both = deep.written_merge(1), deep.written_merge()
    assert deep.do(one) == 1
    assert deep.do(both) == 1, "its other source is not named any more"
    assert deep.statuses() == QUEUED | {"j1": "running"}
    assert [deep.claim() for _ in range(3)] == [["j2"], ["j3"], []]


def test_a_merge_that_left_out_a_job_whose_claim_was_lost_is_given_up() -> None:
    """The merger read its sources in a state whose commit has lost a race since."""
    deep, ahead = Deep(), Deep()
    for each in (deep, ahead):
        each.do(each.written_spill(2))
        each.do(each.written_spill(1))
    assert ahead.claim() == ["j1"]
    merge = ahead.written_merge()
    deep.memory.bodies |= ahead.memory.bodies
    assert deep.do(merge) == 0
    assert deep.statuses() == QUEUED
    assert deep.claim() == ["j1"]
    assert deep.do(merge) == 2, "by now the job has left its source here too"
    assert deep.statuses() == QUEUED | {"j1": "running"}


@pytest.mark.parametrize("what", ["spill", "merge"])
def test_nothing_is_introduced_after_the_last_version_that_may(what: str) -> None:
    deep = Deep()
    written: Spill | Merge = deep.written_spill(2)
    if what == "merge":
        deep.do(written)
        deep.do(deep.written_spill())
        written = deep.written_merge()
    record = (written.segment if isinstance(written, Spill) else written.targets[0]).record
    deep.state.version = record.until
    assert deep.do(written) == 0
    assert record.id not in deep.state.cold.rows.segments
    deep.state.version = record.until - 1
    assert deep.do(written) > 0
    assert deep.statuses() == QUEUED


def test_jobs_that_were_decoded_are_found_in_the_merged_segment() -> None:
    deep = Deep()
    deep.do(deep.written_spill(2))
    deep.do(deep.written_spill(1))
    assert deep.claim() == ["j1"], "its neighbour is decoded with it"
    deep.do(deep.written_merge())
    assert [deep.claim() for _ in range(3)] == [["j2"], ["j3"], []]
    assert deep.statuses() == dict.fromkeys(QUEUED, "running")


def test_rows_of_several_segments_are_found_where_a_merge_has_put_them() -> None:
    """Some leave while it is written, and some are decoded before it is named."""
    deep = Deep()
    while deep.claim():
        pass
    deep.do(Push(jobs=tuple(new_job(f"{n:02}", "ab"[n % 2]) for n in range(24))))
    for _ in range(3):
        deep.do(deep.written_spill(8))
    merge = deep.written_merge()
    assert [len(origins) for origins in merge.origins] == [6]
    claimed = [
        job.id
        for kind, limit in (("a", 6), ("b", 1))
        for job in deep.do(Claim(worker="w", secret=SECRET, kinds=(kind,), limit=limit))
    ]
    assert claimed == ["00", "02", "04", "06", "08", "10", "01"]
    assert deep.do(Cancel(job="20")) == "cancelled"
    lent = [f"{n:02}" for n in (12, 14, 3, 5, 7)]
    assert all(map(deep.state.cold.is_lent, lent))
    assert deep.do(merge) == 3
    (segment,) = deep.state.cold.rows.segments.values()
    assert segment.gone.ranges == ((0, 5), (10, 10), (12, 12))
    left = [f"{n:02}" for n in range(24) if f"{n:02}" not in {*claimed, "20"}]
    for job in ["14", "05", *(each for each in reversed(left) if each not in {"14", "05"})]:
        assert deep.do(Cancel(job=job)) == "cancelled"
        left.remove(job)
        waiting = [each for each, status in deep.statuses().items() if status == "queued"]
        assert waiting == left


def test_a_source_that_is_no_longer_named_is_gone_from_a_merge() -> None:
    deep = Deep()
    deep.do(deep.written_spill(2))
    deep.do(deep.written_spill(1))
    merge = deep.written_merge()
    assert deep.do(Claim(worker="w", secret=SECRET, limit=2))
    assert deep.do(merge) == 1
    (segment,) = deep.state.cold.rows.segments.values()
    assert segment.gone.ranges == ((0, 1),)
    assert deep.statuses() == {"j1": "running", "j2": "running", "j3": "queued"}


def test_a_target_of_which_no_row_is_left_is_not_named() -> None:
    deep = Deep()
    deep.do(deep.written_spill(2))
    deep.do(deep.written_spill(1))
    deep.state.version += 1  # Or the segments of the merge would have the names of its sources.
    first = deep.written_merge(1)
    (_, other) = deep.state.cold.rows.segments
    second = deep.written(deep.write("ready", [deep.jobs()[2]]), NOW)
    merge = Merge(
        sources=(*first.sources, other),
        targets=(*first.targets, second),
        origins=(*first.origins, (Stretch(other, 0, 1),)),
    )
    assert deep.do(Claim(worker="w", secret=SECRET, limit=2))
    assert deep.do(merge) == 1
    assert deep.state.cold.rows.names() == {second.record.id}
    assert deep.claim() == ["j3"]


def written_vector(deep: Deep) -> NameVector:
    written = deep.vector(NOW)
    assert written is not None
    return written


def test_a_vector_takes_over_what_has_left_and_more_leaves_after_it() -> None:
    deep = Deep()
    deep.do(deep.written_spill())
    deep.do(Cancel(job="j2"))
    assert deep.do(written_vector(deep)) == 1
    (segment,) = deep.state.cold.rows.segments.values()
    assert (segment.record.gone, segment.live) == ((), 2)
    deep.reload()
    deep.do(Cancel(job="j1"))
    (entry,) = [each.entry() for each in deep.state.cold.rows.segments.values()]
    assert (entry.gone, entry.live) == (((0, 0),), 1)
    assert [deep.claim(), deep.claim()] == [["j3"], []]


def test_a_vector_does_not_let_a_row_leave_whose_commit_was_lost() -> None:
    deep, other = Deep(), Deep()
    spill = deep.written_spill()
    deep.do(spill)
    other.memory = other.state.cold.rows.cache = deep.memory
    other.do(spill)
    other.do(Cancel(job="j2"))  # Its commit is lost, and the vector is named on the other state.
    assert deep.do(written_vector(other)) == 0
    assert deep.statuses() == QUEUED
    assert [deep.claim() for _ in range(3)] == [["j1"], ["j2"], ["j3"]]


def test_a_vector_is_not_introduced_after_its_last_version() -> None:
    deep = Deep()
    deep.do(deep.written_spill())
    deep.do(Cancel(job="j2"))
    vector = written_vector(deep)
    deep.state.version = vector.until
    assert deep.do(vector) == 0
    deep.state.version -= 1
    assert deep.do(vector) == 1


def test_a_queue_goes_back_to_format_1_when_its_segments_are_gone() -> None:
    deep, back = Deep(), Configure(changes={"max_format": 1})
    deep.do(deep.written_spill())
    refused = deep.apply(Request(back), NOW).error
    assert isinstance(refused, RejectedError)
    assert "while the queue has segments (1)" in str(refused)
    assert (list(deep.state.requires), deep.state.settings.max_format) == (["segments"], 2)
    for job in QUEUED:
        deep.do(Cancel(job=job))
    assert list(deep.state.requires) == ["segments"]
    deep.state.changes.clear()
    assert deep.do(back).max_format == 1
    assert (deep.state.requires, deep.state.has_changes) == ({}, True)


def test_a_spill_is_given_up_if_segments_are_not_allowed_any_more() -> None:
    deep = Deep()
    spill = deep.written_spill()
    deep.do(Configure(changes={"max_format": 1}))
    assert deep.do(spill) == 0
    assert (len(deep.state.jobs), deep.state.requires) == (3, {})


def test_former_incarnations_are_forgotten_once() -> None:
    deep = Deep()
    deep.state.former = dict.fromkeys(["a", "b"])
    deep.state.changes.clear()
    assert deep.do(ForgetFormer(("c",))) == 0
    assert not deep.state.has_changes
    assert deep.do(ForgetFormer(("b", "c"))) == 1
    assert (list(deep.state.former), deep.state.has_changes) == (["a"], True)


@pytest.mark.parametrize("spilled", [1, 9, 19])
def test_a_claim_takes_jobs_of_segments_and_of_the_object_together(spilled: int) -> None:
    deep = Deep()
    deep.do(Push(jobs=tuple(new_job(f"j{number}") for number in range(4, 21))))
    assert deep.do(deep.written_spill(spilled)) == spilled
    claim = Claim(worker="w", secret=SECRET, limit=19)
    assert [job.seq for job in deep.do(claim)] == [*range(1, 20)]
    assert [job.seq for job in deep.state.jobs] == [*range(1, 21)]
    assert [job.status for job in deep.state.jobs] == ["running"] * 19 + ["queued"]
    assert all(deep.state.jobs.by_id[job.id] is job for job in deep.state.jobs)
    assert deep.state.jobs.take_touched() == {0}

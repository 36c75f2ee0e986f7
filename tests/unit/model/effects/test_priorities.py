"""Changing the priority of jobs that wait, wherever they are."""

from __future__ import annotations

import pytest

from bucketq.errors import InvalidRequestError, JobNotFoundError
from bucketq.model.effects.access import right_of
from bucketq.model.limits import SetLimit
from bucketq.model.operations import Cancel, Claim, Push, Release, Request, SetPriority
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, Driver, lease_of, new_job


@pytest.fixture
def queue() -> Driver:
    return Driver(max_format=2)


def set_priority(queue: Driver, job: str, priority: int) -> None:
    assert queue.ok(SetPriority(job=job, priority=priority)) is None


@pytest.mark.parametrize("is_read_again", [False, True])
def test_a_job_goes_before_or_behind_others_by_its_new_priority(
    queue: Driver, is_read_again: bool
) -> None:
    queue.push_many("j1", "j2", "j3", "j4", "j5")
    set_priority(queue, "j1", 5)
    set_priority(queue, "j4", -1)
    set_priority(queue, "j2", 5)
    if is_read_again:
        queue.reload()
    assert queue.claim_ids(limit=9) == ["j4", "j3", "j5", "j1", "j2"]


def test_a_priority_that_is_put_back_leaves_one_job(queue: Driver) -> None:
    queue.push_many("j1", "j2", "j3")
    for priority in (5, -5, 5, 0):
        set_priority(queue, "j1", priority)
    assert queue.claim_ids(limit=2) == ["j1", "j2"]
    assert queue.claim_ids(limit=9) == ["j3"]


def test_many_changes_do_not_let_a_lane_grow(queue: Driver) -> None:
    queue.push_many("j1", "j2")
    for number in range(5000):
        set_priority(queue, "j1", 1 + number % 7)
    assert len(queue.state.waiting.lanes["index"]) < 1100
    assert queue.claim_ids(limit=9) == ["j2", "j1"]


def test_what_changes_nothing_is_not_committed(queue: Driver) -> None:
    queue.push("j1", priority=3)
    assert queue.send(SetPriority(job="j1", priority=3)).changes == []


def test_delayed_and_held_jobs_get_a_priority_for_when_they_are_due(queue: Driver) -> None:
    queue.push("delayed", delay_s=60)
    queue.push("parent", priority=9)
    queue.push("held", after=("parent",))
    queue.push("plain")
    set_priority(queue, "delayed", -1)
    set_priority(queue, "held", -2)
    assert queue.claim_ids(limit=1) == ["plain"]
    queue.complete(queue.claim_one())
    queue.wait(60)
    assert queue.claim_ids(limit=9) == ["held", "delayed"]


def test_a_job_that_was_delayed_and_is_due_moves_too(queue: Driver) -> None:
    queue.push("late", delay_s=1)
    queue.push_many("j1", "j2")
    queue.wait(2)
    job = queue.claim_one()
    assert job.id == "late"
    queue.ok(Release(job="late", lease=lease_of(job)))
    queue.push("also late", delay_s=1)
    queue.wait(2)
    assert queue.ok(Claim(worker="w", secret=SECRET, kinds=("other",))) == ()
    set_priority(queue, "also late", -7)
    set_priority(queue, "late", 7)
    assert queue.claim_ids(limit=9) == ["also late", "j1", "j2", "late"]


def test_a_group_has_its_turn_among_those_of_the_new_priority(queue: Driver) -> None:
    queue.ok(SetLimit(target="group=a", running=5))
    for number, group in enumerate("aabb", 1):
        queue.push(f"j{number}", group=group)
    set_priority(queue, "j4", -1)
    set_priority(queue, "j1", 1)
    assert [queue.claim_one().id for _ in range(4)] == ["j4", "j2", "j3", "j1"]


@pytest.mark.parametrize("decodes", [False, True])
def test_a_job_in_a_segment_gets_its_place_by_the_new_priority(
    queue: Driver, decodes: bool
) -> None:
    queue.push_many(*(f"j{number}" for number in range(6)))
    deep = DeepState(queue.state)
    spilled = deep.spill("ready", START, 9)
    assert spilled is not None
    assert deep.apply(Request(spilled), START).answer == 6
    deep.reload()
    if decodes:
        assert claimed(deep, 1) == ["j0"]
    for job, priority in (("j5", -1), ("j1", 1), ("j9", 0)):
        applied = deep.apply(Request(SetPriority(job=job, priority=priority)), START)
        assert isinstance(applied.error, JobNotFoundError) == (job == "j9")
    assert deep.apply(Request(Push(jobs=(new_job("new"),))), START).error is None
    expected = ["j5", "j0", "j2", "j3", "j4", "new", "j1"]
    assert claimed(deep, 9) == [job for job in expected if job != "j0" or not decodes]


def claimed(deep: DeepState, limit: int) -> list[str]:
    claim = Claim(worker="w", secret=SECRET, limit=limit)
    return [job.id for job in deep.apply(Request(claim), START).result()]


def test_a_push_that_is_repeated_finds_the_job_with_its_new_priority(queue: Driver) -> None:
    queue.push("j1", priority=3)
    set_priority(queue, "j1", 4)
    assert queue.push("j1", priority=3) == "j1"
    assert queue.job("j1").priority == 4


def test_only_jobs_that_wait_have_a_priority_to_change(queue: Driver) -> None:
    queue.push_many("running", "gone")
    queue.claim_one()
    queue.ok(Cancel(job="gone"))
    queue.kill("dead")
    for job, status in (("running", "running"), ("gone", "done"), ("dead", "dead")):
        refusal = queue.refused(SetPriority(job=job, priority=1), InvalidRequestError)
        assert f"job {job} is {status}; only the priority of a job that waits" in refusal
    queue.refused(SetPriority(job="none", priority=1), JobNotFoundError)
    queue.push("j1")
    assert "priority" in queue.refused(SetPriority(job="j1", priority=2**40), InvalidRequestError)
    assert right_of(SetPriority(job="j1", priority=1)) == "admin"

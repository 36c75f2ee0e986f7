"""Jobs that wait for others: they are held until these have completed, or die with them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import (
    DependencyNotFoundError,
    InvalidRequestError,
    QueueFullError,
    RejectedError,
)
from bucketq.model.base import NewJob
from bucketq.model.effects.segment_changes import class_of
from bucketq.model.job_batches import CloseBatch, OpenBatch, ReadBatches
from bucketq.model.operations import (
    Cancel,
    Configure,
    Push,
    ReadStats,
    Redrive,
    Release,
    Request,
    Tidy,
)
from bucketq.model.schedules import SetSchedule
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import START, Driver, lease_of, new_job


@pytest.fixture
def queue() -> Driver:
    return Driver(max_format=2)


def statuses(queue: Driver, *names: str) -> list[str]:
    return [queue.job(name).status for name in names]


def test_a_job_is_held_until_all_that_it_waits_for_have_completed(queue: Driver) -> None:
    queue.push_many("j1", "j2")
    queue.push("j3", after=("j1", "j2"), priority=-5)
    assert list(queue.state.requires) == ["after"]
    assert queue.job("j3").is_held
    stats = queue.ok(ReadStats())
    assert (stats.counts, stats.held) == ({"index": {"queued": 3}}, {"index": 1})
    assert stats.unclaimed() == {"index": 2}
    queue.reload()
    one, two = queue.claim(limit=10)
    queue.complete(one)
    assert queue.job("j3").after == ("j2",)
    assert queue.claim_ids() == []
    queue.reload()
    queue.complete(two)
    assert queue.job("j3").after == ()
    assert queue.ok(ReadStats()).held == {}
    assert queue.claim_ids() == ["j3"]


def test_a_job_that_is_retried_released_or_lost_holds_others_back(queue: Driver) -> None:
    queue.ok(Configure(changes={"backoff": {"base_s": 0.0}}))
    queue.push("j1")
    queue.push("j2", after=("j1",))
    job = queue.claim_one()
    queue.fail(job)
    assert queue.job("j2").is_held
    job = queue.claim_one()
    queue.ok(Release(job=job.id, lease=lease_of(job)))
    assert queue.job("j2").is_held
    queue.expire(queue.claim_one())
    assert queue.job("j2").is_held
    queue.complete(queue.claim_one())
    assert queue.claim_ids() == ["j2"]


def test_a_chain_runs_in_its_order(queue: Driver) -> None:
    jobs = [new_job("j1"), *(new_job(f"j{n}", after=(f"j{n - 1}",)) for n in range(2, 6))]
    queue.ok(Push(jobs=tuple(jobs)))
    for number in range(1, 6):
        (job,) = queue.claim(limit=9)
        assert job.id == f"j{number}"
        queue.complete(job)


@pytest.mark.parametrize(
    ("end", "reason"), [("dead", "is dead"), ("cancelled", "was cancelled"), ("expired", "expired")]
)
def test_a_job_dies_with_one_that_it_waits_for_and_so_do_those_behind_it(
    queue: Driver, end: str, reason: str
) -> None:
    queue.push("j1", max_attempts=1, expires_in_s=5.0 if end == "expired" else None)
    queue.push("other")
    queue.push("j2", after=("j1", "other"))
    queue.push("j3", after=("j2",))
    queue.push("j4", after=("j1",), on_failed="run")
    queue.push("j5", after=("j3",), on_failed="run")
    queue.wait(5)
    if end == "dead":
        queue.fail(queue.claim_one())
    elif end == "cancelled":
        queue.ok(Cancel(job="j1"))
    else:
        queue.ok(Tidy())
    assert statuses(queue, "j2", "j3", "j4", "j5") == ["dead", "dead", "queued", "queued"]
    (error,) = queue.job("j2").errors
    assert error.error == f"job j1, which it was to follow, {error.error.split('follow, ')[1]}"
    assert reason in error.error
    assert queue.job("j3").errors[0].error == "job j2, which it was to follow, is dead"
    assert queue.job("j2").after == ("j1", "other")
    assert (queue.job("j2").finished_at, queue.job("j2").attempt) == (queue.now, 0)
    assert not queue.state.followed.held_count
    assert queue.claim_ids() == ["other", "j4", "j5"]


def test_what_has_ended_before_the_push_counts(queue: Driver) -> None:
    queue.push_many("j1", "j2", max_attempts=1)
    queue.complete(queue.claim_one())
    queue.fail(queue.claim_one())
    queue.push("j3", after=("j1",))
    queue.push("j4", after=("j1", "j2"))
    queue.push("j5", after=("j2",), on_failed="run")
    assert statuses(queue, "j3", "j4", "j5") == ["queued", "dead", "queued"]
    assert queue.job("j4").after == ("j2",)
    assert queue.job("j5").on_failed is None
    assert queue.claim_ids() == ["j3", "j5"]


def test_what_is_in_the_archive_counts_as_the_client_says(queue: Driver) -> None:
    push = Push(jobs=(new_job("j1", after=("old",)),))
    assert "old" in queue.refused(push, DependencyNotFoundError)
    queue.push("j1", after=("old",), ends={"old": True})
    queue.push("j2", after=("old",), ends={"old": False})
    queue.push("j3", after=("old",), ends={"old": False}, on_failed="run")
    assert statuses(queue, "j1", "j2", "j3") == ["queued", "dead", "queued"]
    assert queue.claim_ids() == ["j1", "j3"]
    queue.push("old")  # Another job has the id now, and it counts.
    queue.push("j4", after=("old",), ends={"old": True})
    assert queue.job("j4").is_held


def test_a_retry_that_looked_the_archive_up_is_the_same_request(queue: Driver) -> None:
    job = new_job("j1", after=("old",), key="k")
    found = Push(jobs=(new_job("j1", after=("old",), key="k", ends={"old": True}),))
    queue.ok(found, "s", number=1)
    assert queue.send(found, "s", number=1).changes == []
    assert queue.send(Push(jobs=(job,)), "s", number=1).answer == ("j1",)
    again = new_job("j9", after=("old",), key="k", ends={"old": False})
    assert queue.ok(Push(jobs=(again,))) == ("j1",)


def test_jobs_that_were_never_pushed_are_named(queue: Driver) -> None:
    queue.push("j1")
    many = tuple(f"x{n}" for n in range(5))
    message = queue.refused(
        Push(jobs=(new_job("j2", after=("j1", *many)),)), DependencyNotFoundError
    )
    assert "x0, x1, x2 and 2 more" in message
    later = Push(jobs=(new_job("a", after=("b",)), new_job("b")))
    assert "b" in queue.refused(later, DependencyNotFoundError)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"after": tuple(f"j{n}" for n in range(1001))}, "1,000"),
        ({"after": ("j1", "j1")}, "different"),
        ({"after": ("j2",)}, "itself"),
        ({"after": ("",)}, "a job id in after"),
        ({"after": ("j1",), "on_failed": "walk"}, "on_failed"),
        ({"on_failed": "run", "batch_id": "b"}, "give after too"),
        ({"batch_id": ""}, "batch_id"),
    ],
)
def test_bad_links_are_refused(queue: Driver, fields: dict[str, Any], reason: str) -> None:
    queue.push("j1")
    push = Push(jobs=(new_job("j2", **fields),))
    assert reason in queue.refused(push, InvalidRequestError)


def test_held_jobs_are_bounded(queue: Driver) -> None:
    queue.ok(Configure(changes={"max_held": 2, "max_held_bytes": 1000}))
    queue.push("j1")
    queue.push_many("j2", "j3", after=("j1",))
    push = Push(jobs=(new_job("j4", after=("j1",)),))
    assert "max_held" in queue.refused(push, QueueFullError)
    queue.ok(Cancel(job="j2"))
    large = NewJob(id="j4", kind="a", payload=Raw(b'"%s"' % (b"x" * 900)), after=("j1",))
    assert "max_held_bytes" in queue.refused(Push(jobs=(large,)), QueueFullError)
    queue.ok(push)
    queue.complete(queue.claim_one())
    assert queue.state.followed.held_bytes == 0


def test_a_held_job_can_be_cancelled_and_can_expire(queue: Driver) -> None:
    queue.push("j1")
    queue.push("j2", after=("j1",))
    queue.push("j3", after=("j1",), expires_in_s=5.0)
    queue.push("j4", after=("j3",), on_failed="run")
    queue.ok(Cancel(job="j2"))
    queue.wait(5)
    queue.ok(Tidy())
    assert [queue.job(name).outcome for name in ("j2", "j3")] == ["cancelled", "expired"]
    assert not queue.state.followed.held_count
    assert queue.claim_ids() == ["j1", "j4"]


def test_a_delay_counts_beside_what_a_job_waits_for(queue: Driver) -> None:
    queue.push("j1")
    queue.push("j2", after=("j1",), delay_s=60.0)
    queue.wait(70)
    assert queue.claim_ids() == ["j1"]
    queue.push("j3")
    queue.push("j4", after=("j3",), delay_s=60.0)
    queue.complete(queue.claim_one())
    assert queue.claim_ids() == []
    assert queue.job("j4").after == ()
    queue.wait(60)
    assert queue.claim_ids() == ["j4"]


def test_a_redrive_waits_again_for_what_is_not_over_and_for_nothing_else(queue: Driver) -> None:
    queue.push("j1", max_attempts=1)
    queue.push("j2")
    queue.push("j3", after=("j1", "j2"))
    queue.push("j4", after=("j3",))
    queue.fail(queue.claim_one())
    queue.ok(Redrive(jobs=("j1",)))
    assert statuses(queue, "j3", "j4") == ["dead", "dead"]  # It revives no other.
    queue.fail(queue.claim_one())
    queue.ok(Redrive(jobs=("j4", "j3")))
    assert queue.job("j3").after == ("j2",)  # The dead one counts no longer.
    assert queue.job("j4").after == ("j3",)
    queue.complete(queue.claim_one())
    for name in ("j3", "j4"):
        job = queue.claim_one()
        assert job.id == name
        queue.complete(job)
    assert statuses(queue, "j1") == ["dead"]


def test_a_redrive_of_everything_keeps_the_order(queue: Driver) -> None:
    queue.push("j1", max_attempts=1)
    queue.push("j2", after=("j1",))
    queue.fail(queue.claim_one())
    queue.ok(Redrive())
    assert queue.claim_ids() == ["j1"]
    assert queue.job("j2").is_held


def test_a_held_job_counts_in_its_batch(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=new_job("", "report")))
    queue.push("j1", max_attempts=1)
    queue.push("j2", after=("j1",), batch_id="b1")
    queue.ok(CloseBatch(batch="b1"))
    queue.fail(queue.claim_one())
    (batch,) = queue.ok(ReadBatches())
    assert (batch.status, batch.dead) == ("done", 1)
    queue.push("j3", after=("j1",))
    queue.ok(OpenBatch(batch="b2", on_done=new_job("", "report")))
    queue.push("j4", after=("j1",), batch_id="b2")  # It is dead at once.
    assert queue.ok(CloseBatch(batch="b2")).dead == 1
    assert [job.kind for job in queue.claim(limit=9)] == ["report", "report"]


def test_a_held_job_stays_in_the_object(queue: Driver) -> None:
    queue.push("j1")
    queue.push("j2", after=("j1",))
    assert class_of(queue.job("j2"), START) is None
    deep = DeepState(queue.state)
    spilled = deep.spill("ready", START, 9)
    assert spilled is not None
    assert deep.apply(Request(spilled), START).answer == 1
    assert [job.id for job in deep.state.jobs] == ["j2"]
    deep.reload()
    push = Push(jobs=(new_job("j3", after=("j1",)), new_job("j4", after=("never",))))
    error = deep.apply(Request(push), START).error
    assert isinstance(error, DependencyNotFoundError)
    deep.apply(Request(Push(jobs=push.jobs[:1])), START).result()
    assert deep.apply(Request(Cancel(job="j1")), START).answer == "cancelled"
    assert {job.id for job in deep.state.jobs if job.status == "dead"} == {"j2", "j3"}


def test_dead_jobs_in_segments_wait_again_when_they_are_redriven(queue: Driver) -> None:
    queue.push_many("j1", "j2")
    queue.push("j3", after=("j1", "j2"))
    queue.ok(Cancel(job="j1"))
    deep = DeepState(queue.state)
    for cls in ("dead", "ready"):
        spilled = deep.spill(cls, START, 9)
        assert spilled is not None
        assert deep.apply(Request(spilled), START).answer == 1
    deep.reload()
    assert deep.apply(Request(Redrive(jobs=("j3",))), START).answer == 1
    assert deep.state.jobs.by_id["j3"].after == ("j2",)


def test_a_schedule_pushes_plain_jobs(queue: Driver) -> None:
    queue.push("j1")
    for fields in ({"after": ("j1",)}, {"batch_id": "b1"}):
        job = new_job("", **fields)
        operation = SetSchedule(schedule="s", job=job, every_s=60.0)
        assert next(iter(fields)) in queue.refused(operation, InvalidRequestError)


def test_format_1_knows_no_held_jobs(queue: Driver) -> None:
    old = Driver()
    old.push("j1")
    push = Push(jobs=(new_job("j2", after=("j1",)),))
    assert "upgrade" in old.refused(push, RejectedError)
    queue.push("j1")
    queue.ok(push)
    assert "wait for others" in queue.refused(Configure(changes={"max_format": 1}), RejectedError)

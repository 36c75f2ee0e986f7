"""Several jobs are given back in one request, and each of them for itself."""

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.model.operations import Cancel, LeaseRef, Release, ReleaseMany
from bucketq.model.records import JobRecord
from tests.unit.model.driver import Driver, lease_of, rows_of


@pytest.fixture
def queue() -> Driver:
    return Driver(backoff={"base_s": 0.0})


def claimed(queue: Driver, *names: str) -> list[JobRecord]:
    queue.push_many(*names)
    return list(queue.claim(limit=len(names)))


def many(*jobs: JobRecord, delay_s: float = 0.0) -> ReleaseMany:
    leases = tuple(LeaseRef(job.id, lease_of(job)) for job in jobs)
    return ReleaseMany(leases=leases, delay_s=delay_s)


def test_jobs_are_queued_again_in_their_order_and_have_lost_no_attempt(queue: Driver) -> None:
    jobs = claimed(queue, "j1", "j2", "j3")
    assert queue.ok(many(*reversed(jobs))) == (True, True, True)
    again = queue.claim(limit=3)
    assert [job.id for job in again] == ["j1", "j2", "j3"]
    assert {(job.attempt, job.failures, job.lost_leases) for job in again} == {(2, 0, 0)}


@pytest.mark.parametrize("delay_s", [0.0, 5.0])
def test_a_job_given_back_among_others_is_as_one_given_back_alone(
    queue: Driver, delay_s: float
) -> None:
    other = Driver(backoff={"base_s": 0.0})
    (job,) = claimed(queue, "j1")
    (twin,) = claimed(other, "j1")
    queue.ok(many(job, delay_s=delay_s))
    other.ok(Release(job="j1", lease=lease_of(twin), delay_s=delay_s))
    assert rows_of(queue.state) == rows_of(other.state)


def test_a_lost_lease_does_not_hold_up_the_others(queue: Driver) -> None:
    lost, held = claimed(queue, "j1", "j2")
    queue.expire(lost)
    successor = queue.claim_one()
    unknown, wrong = LeaseRef("unknown", "x"), LeaseRef("j2", "wrong")
    leases = (*many(lost).leases, unknown, wrong, *many(held, held).leases)
    assert queue.ok(ReleaseMany(leases=leases)) == (False, False, False, True, False)
    assert queue.job("j1").lease == successor.lease
    assert queue.job("j2").status == "queued"


def test_a_job_whose_cancellation_was_asked_for_is_cancelled(queue: Driver) -> None:
    stopped, other = claimed(queue, "j1", "j2")
    queue.ok(Cancel(job="j1"))
    assert queue.ok(many(stopped, other)) == (True, True)
    assert (queue.job("j1").status, queue.job("j1").outcome) == ("done", "cancelled")
    assert queue.job("j2").status == "queued"


def test_more_jobs_than_a_batch_holds_or_a_bad_delay_give_back_none() -> None:
    queue = Driver(max_batch_jobs=2)
    jobs = [job for name in ("j1", "j2", "j3") for job in claimed(queue, name)]
    message = queue.refused(many(*jobs), InvalidRequestError)
    assert "3 jobs" in message
    assert "max_batch_jobs" in message
    queue.refused(many(jobs[0], delay_s=-1.0), InvalidRequestError)
    assert queue.ok(many(*jobs[:2])) == (True, True)


@pytest.mark.parametrize("reload", [False, True])
def test_releases_that_come_again_are_answered_alike_and_take_nothing_from_successors(
    queue: Driver, reload: bool
) -> None:
    lost, held = claimed(queue, "j1", "j2")
    queue.expire(lost)
    operation = many(lost, held)
    assert queue.ok(operation, "s", number=1) == (False, True)
    queue.claim(limit=2)
    if reload:
        queue.reload()
    before = rows_of(queue.state)
    assert queue.ok(operation, "s", number=1, since=0) == (False, True)
    assert rows_of(queue.state) == before
    assert queue.ok(operation) == (False, False)


def test_releases_that_were_all_granted_leave_no_answer_behind(queue: Driver) -> None:
    operation = many(*claimed(queue, "j1", "j2"))
    queue.ok(operation, "s", number=1)
    session = queue.state.sessions.get("s")
    assert session is not None
    assert (session.done, session.answers) == ([[1, 1]], {})

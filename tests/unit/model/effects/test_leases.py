"""What a worker may say of a job, and what becomes of it."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.errors import (
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    LeaseLostError,
    PayloadError,
)
from bucketq.model.effects.retry_delay import delay_after_failure
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Claim,
    Complete,
    Configure,
    Expire,
    Fail,
    Heartbeat,
    LeaseRef,
    Pulse,
    Push,
    Redrive,
    Release,
    Withdraw,
)
from bucketq.model.records import NOTHING, Backoff, JobRecord
from bucketq.model.settings import Settings
from tests.unit.model.driver import SECRET, START, Driver, lease_of, new_job, ref


@pytest.fixture
def queue() -> Driver:
    return Driver(backoff={"base_s": 0.0})


def settling(job_id: str, lease: str) -> list[AnyOperation]:
    return [
        Complete(job=job_id, lease=lease),
        Fail(job=job_id, lease=lease, error="late"),
        Fail(job=job_id, lease=lease, error="late", retry=False),
        Release(job=job_id, lease=lease),
    ]


def test_a_heartbeat_is_recorded_and_answers_that_the_job_is_held(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.wait(5)
    assert queue.ok(Heartbeat(leases=(ref(job),))) == (Pulse("j1", held=True),)
    assert queue.job("j1").heartbeat_at == START + timedelta(seconds=5)
    assert queue.job("j1").claimed_at == START


def test_a_heartbeat_answers_for_each_job(queue: Driver) -> None:
    queue.push_many("j1", "j2")
    held, done = queue.claim(limit=2)
    queue.complete(done)
    leases = (ref(done), LeaseRef("unknown", "x"), ref(held), LeaseRef("j1", "wrong"))
    pulses = queue.ok(Heartbeat(leases=leases))
    assert [(pulse.job, pulse.held) for pulse in pulses] == [
        ("j2", False),
        ("unknown", False),
        ("j1", True),
        ("j1", False),
    ]


def test_heartbeat_from_an_older_attempt_is_refused(queue: Driver) -> None:
    queue.push("j1")
    old = queue.claim_one()
    queue.expire(old)
    new = queue.claim_one()
    queue.wait(1)
    applied = queue.send(Heartbeat(leases=(ref(old),)))
    assert applied.answer == (Pulse("j1", held=False),)
    assert applied.changes == []
    assert queue.job("j1") == new


@pytest.mark.parametrize("number", range(4))
def test_an_older_attempt_can_settle_nothing(queue: Driver, number: int) -> None:
    queue.push("j1")
    old = queue.claim_one()
    queue.expire(old)
    operation = settling("j1", lease_of(old))[number]
    assert "is queued" in queue.refused(operation, LeaseLostError)
    new = queue.claim_one()
    message = queue.refused(operation, LeaseLostError)
    assert "j1" in message
    assert "attempt 2" in message
    assert "another worker" in message
    queue.complete(new)


@pytest.mark.parametrize("number", range(4))
def test_a_job_that_is_not_there_is_not_found_and_not_held(queue: Driver, number: int) -> None:
    assert "'j9'" in queue.refused(settling("j9", "x")[number], JobGoneError)
    assert issubclass(JobGoneError, LeaseLostError)
    assert issubclass(JobGoneError, JobNotFoundError)


@pytest.mark.parametrize("number", range(4))
def test_a_waiting_job_cannot_be_settled(queue: Driver, number: int) -> None:
    queue.push("j1")
    queue.refused(settling("j1", "")[number], LeaseLostError)


def test_an_expiry_that_was_judged_of_an_older_attempt_does_nothing(queue: Driver) -> None:
    queue.push("j1")
    queue.expire(queue.claim_one())
    assert queue.claim_one().attempt == 2
    for attempt in (0, 1, 3):
        applied = queue.send(Expire(job="j1", attempt=attempt))
        assert (applied.answer, applied.changes) == (False, [])
    assert queue.ok(Expire(job="unknown", attempt=1)) is False


def test_a_job_that_moved_on_is_not_expired(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.complete(job)
    assert queue.ok(Expire(job="j1", attempt=1)) is False


def test_a_completed_job_is_done_with_its_result(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.wait(2)
    queue.ok(Complete(job="j1", lease=lease_of(job), result=Raw(b"[7]")))
    done = queue.job("j1")
    assert (done.status, done.outcome, done.finished_at) == ("done", "completed", queue.now)
    assert done.result == Raw(b"[7]")
    assert done.worker == "w"


def test_completing_twice_under_one_lease_is_idempotent(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.ok(Complete(job="j1", lease=lease_of(job), result=Raw(b"1")))
    queue.reload()
    before = queue.job("j1")
    queue.wait(1)
    applied = queue.send(Complete(job="j1", lease=lease_of(job), result=Raw(b"2")))
    assert (applied.error, applied.changes) == (None, [])
    assert queue.job("j1") == before


def test_completing_a_done_job_under_another_lease_is_refused(queue: Driver) -> None:
    queue.push("j1")
    queue.complete(queue.claim_one())
    queue.refused(Complete(job="j1", lease="other"), LeaseLostError)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_done_job_stays_done(queue: Driver, number: int) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.complete(job)
    assert "is done" in queue.refused(settling("j1", lease_of(job))[number], LeaseLostError)


def test_a_result_that_is_empty_is_none(queue: Driver) -> None:
    queue.push("j1")
    queue.ok(Complete(job="j1", lease=lease_of(queue.claim_one()), result=Raw(bytes(0))))
    queue.reload()
    assert queue.job("j1").result == NOTHING


def test_a_result_that_is_not_json_leaves_the_job_running(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.refused(Complete(job="j1", lease=lease_of(job), result=Raw(b"{")), PayloadError)
    queue.complete(job)


def test_a_failed_job_waits_and_is_tried_again(queue: Driver) -> None:
    queue.push("j1", backoff=Backoff(base_s=10.0))
    assert queue.fail(queue.claim_one()) == "queued"
    job = queue.job("j1")
    assert (job.failures, job.lost_leases, job.attempt) == (1, 0, 1)
    assert (job.lease, job.worker, job.claimed_at, job.heartbeat_at) == (None, None, None, None)
    assert job.run_at is not None
    assert 5 <= (job.run_at - START).total_seconds() <= 10
    assert queue.claim_ids() == []
    queue.wait(10)
    assert queue.claim_one().attempt == 2


def test_a_failure_without_retry_is_the_end(queue: Driver) -> None:
    queue.push("j1")
    assert queue.fail(queue.claim_one(), retry=False) == "dead"
    job = queue.job("j1")
    assert (job.status, job.outcome, job.finished_at) == ("dead", None, START)
    assert job.failures == 1


def test_a_job_dies_of_its_last_attempt_and_not_before(queue: Driver) -> None:
    queue.push("j1", max_attempts=3)
    assert [queue.fail(queue.claim_one()) for _ in range(3)] == ["queued", "queued", "dead"]


def test_max_attempts_come_from_the_settings_if_the_job_has_none() -> None:
    queue = Driver(max_attempts=2, backoff={"base_s": 0.0})
    queue.push("j1")
    assert [queue.fail(queue.claim_one()) for _ in range(2)] == ["queued", "dead"]


def test_failures_and_lost_leases_are_counted_apart_and_meet_the_limit_together(
    queue: Driver,
) -> None:
    queue.push("j1", max_attempts=3)
    queue.fail(queue.claim_one())
    queue.expire(queue.claim_one())
    job = queue.job("j1")
    assert (job.failures, job.lost_leases, job.status) == (1, 1, "queued")
    queue.expire(queue.claim_one())
    job = queue.job("j1")
    assert (job.failures, job.lost_leases, job.status, job.attempt) == (1, 2, "dead", 3)


def test_a_lost_lease_is_tried_again_at_once(queue: Driver) -> None:
    queue.push("j1", backoff=Backoff(base_s=100.0))
    queue.expire(queue.claim_one())
    assert queue.job("j1").run_at is None
    assert queue.claim_ids() == ["j1"]


def test_a_release_costs_no_attempt(queue: Driver) -> None:
    queue.push("j1", max_attempts=1)
    for _ in range(5):
        job = queue.claim_one()
        queue.ok(Release(job="j1", lease=lease_of(job)))
    job = queue.job("j1")
    assert (job.status, job.failures, job.lost_leases, job.attempt) == ("queued", 0, 0, 5)
    assert job.errors == ()


def test_a_release_costs_nothing_if_new_settings_leave_no_attempt(queue: Driver) -> None:
    queue.push("j1")
    queue.fail(queue.claim_one())
    job = queue.claim_one()
    queue.ok(Configure(changes={"max_attempts": 1}))
    queue.ok(Release(job="j1", lease=lease_of(job)))
    assert queue.job("j1").status == "queued"


def test_a_release_may_ask_for_a_delay(queue: Driver) -> None:
    queue.push("j1")
    queue.ok(Release(job="j1", lease=lease_of(queue.claim_one()), delay_s=7.0))
    assert queue.job("j1").run_at == START + timedelta(seconds=7)


def claim_as(queue: Driver, number: int, limit: int = 3) -> list[JobRecord]:
    """Claim jobs under an id, so that the claim can be withdrawn."""
    claim = Claim(worker="w", secret=SECRET, limit=limit)
    return list(queue.ok(claim, "session", number=number))


def test_a_withdrawn_claim_releases_what_it_still_holds_at_no_cost(queue: Driver) -> None:
    queue.push_many("j1", "j2", "j3", "j4", max_attempts=1)
    done, lost, held = claim_as(queue, 1)
    (other,) = claim_as(queue, 2)
    queue.complete(done)
    queue.ok(Release(job=lost.id, lease=lease_of(lost)))
    again = queue.claim_one()
    queue.reload()
    withdraw = Withdraw(session="session", number=1, secret=SECRET)
    assert queue.ok(withdraw) == 1
    job = queue.job(held.id)
    assert (job.status, job.failures, job.lost_leases, job.attempt) == ("queued", 0, 0, 1)
    assert queue.job(again.id).lease == again.lease
    assert queue.job(other.id).lease == other.lease
    assert queue.ok(withdraw) == 0
    claim = Claim(worker="w", secret=SECRET, limit=3)
    assert queue.ok(claim, "session", number=1) == (), "it is not handed out again"


@pytest.mark.parametrize(
    "withdraw",
    [
        Withdraw(session="session", number=1, secret="f" * 32),
        Withdraw(session="session", number=2, secret=SECRET),
        Withdraw(session="session", number=9, secret=SECRET),
        Withdraw(session="unknown", number=1, secret=SECRET),
    ],
)
def test_a_withdrawal_of_anything_but_ones_own_claim_changes_nothing(
    queue: Driver, withdraw: Withdraw
) -> None:
    queue.push("j1")
    (job,) = claim_as(queue, 1)
    queue.ok(Push(jobs=(new_job("j2"),)), "session", number=2)
    applied = queue.send(withdraw)
    assert (applied.answer, applied.changes) == (0, [])
    assert queue.job("j1").lease == job.lease


def test_a_redrive_sets_the_counts_to_zero_but_never_the_attempt(queue: Driver) -> None:
    queue.push("j1", max_attempts=2)
    queue.fail(queue.claim_one())
    queue.expire(queue.claim_one())
    assert queue.ok(Redrive()) == 1
    job = queue.job("j1")
    assert (job.status, job.failures, job.lost_leases, job.attempt) == ("queued", 0, 0, 2)
    assert (job.finished_at, job.run_at) == (None, None)
    assert [failure.cause for failure in job.errors] == ["failed", "lost"]
    assert queue.fail(queue.claim_one()) == "queued"
    assert queue.claim_one().attempt == 4


def test_a_heartbeat_of_a_cancelled_job_reports_the_cancellation(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    assert queue.ok(Cancel(job="j1")) == "requested"
    (pulse,) = queue.ok(Heartbeat(leases=(ref(job),)))
    assert (pulse.held, pulse.cancel_requested) == (True, True)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_job_to_be_cancelled_is_cancelled_when_its_lease_ends(queue: Driver, number: int) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.ok(Cancel(job="j1"))
    ends = [*settling("j1", lease_of(job)), Expire(job="j1", attempt=1)]
    queue.wait(1)
    queue.ok(ends[number])
    done = queue.job("j1")
    assert (done.status, done.outcome, done.finished_at) == ("done", "cancelled", queue.now)
    assert (done.cancel_requested, done.lease) == (False, None)


def test_a_job_to_be_cancelled_may_still_complete(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.ok(Cancel(job="j1"))
    queue.complete(job)
    done = queue.job("j1")
    assert (done.status, done.outcome, done.cancel_requested) == ("done", "completed", False)


def failed(job_id: str, failures: int, backoff: Backoff | None = None) -> JobRecord:
    return JobRecord(
        id=job_id,
        kind="index",
        status="running",
        seq=1,
        payload=Raw(b"1"),
        pushed_at=START,
        attempt=failures,
        failures=failures,
        backoff=backoff,
    )


@settings(deadline=None)
@given(
    job_id=st.text("abcdef", min_size=1),
    failures=st.integers(1, 5000),
    backoff=st.builds(Backoff, st.floats(0, 1e3), st.floats(1, 100), st.floats(0, 1e6)),
)
def test_a_backoff_lies_between_half_and_all_of_its_length(
    job_id: str, failures: int, backoff: Backoff
) -> None:
    delay_s = delay_after_failure(failed(job_id, failures, backoff), Settings()).total_seconds()
    try:
        full_s = min(backoff.base_s * backoff.factor ** (failures - 1), backoff.max_s)
    except OverflowError:
        full_s = backoff.max_s if backoff.base_s else 0.0
    assert full_s / 2 - 1e-6 <= delay_s <= full_s + 1e-6


def test_a_backoff_grows_until_its_longest() -> None:
    backoff = Backoff(base_s=1.0, factor=4.0, max_s=500.0)
    delays = [
        delay_after_failure(failed("j1", failures, backoff), Settings()).total_seconds()
        for failures in range(1, 9)
    ]
    assert all(later > earlier for earlier, later in pairwise(delays[:5]))
    assert max(delays) <= 500
    assert min(delays[5:]) >= 250


def test_jitter_is_the_same_for_the_same_attempt_and_spreads_jobs() -> None:
    def delay(job_id: str) -> timedelta:
        return delay_after_failure(failed(job_id, 1), Settings(backoff=Backoff(base_s=100.0)))

    delays = {delay(f"j{number}") for number in range(100)}
    assert delay("j1") == delay("j1")
    assert len(delays) == 100
    assert max(delays) - min(delays) > timedelta(seconds=40)


def test_a_backoff_of_nothing_stays_nothing_after_any_number_of_failures() -> None:
    for failures in (1, 1024, 1025, 100_000):
        assert not delay_after_failure(failed("j1", failures, Backoff(base_s=0.0)), Settings())


def test_a_job_remembers_its_last_errors_only() -> None:
    queue = Driver(max_errors=3, max_attempts=10, backoff={"base_s": 0.0})
    queue.push("j1")
    for number in range(1, 6):
        queue.fail(queue.claim_one(), f"error {number}")
    queue.expire(queue.claim_one())
    errors = queue.job("j1").errors
    assert [(e.attempt, e.cause, e.error, e.worker) for e in errors] == [
        (4, "failed", "error 4", "w"),
        (5, "failed", "error 5", "w"),
        (6, "lost", "no heartbeat", "w"),
    ]


def test_a_queue_may_remember_no_errors() -> None:
    queue = Driver(max_errors=0)
    queue.push("j1")
    queue.fail(queue.claim_one())
    assert queue.job("j1").errors == ()


@pytest.mark.parametrize(
    ("text", "kept"),
    [("x" * 10, "x" * 10), ("x" * 11, "x" * 10), ("x" * 9 + "é", "x" * 9), ("é" * 9, "é" * 5)],
)
def test_an_error_is_cut_at_its_limit_and_within_no_letter(text: str, kept: str) -> None:
    queue = Driver(max_error_bytes=10)
    queue.push("j1")
    queue.fail(queue.claim_one(), text)
    assert queue.job("j1").errors[0].error == kept


@pytest.mark.parametrize("error", ["\ud800", 5, None])
def test_an_error_that_is_not_text_is_refused(queue: Driver, error: str) -> None:
    queue.push("j1")
    lease = lease_of(queue.claim_one())
    queue.refused(Fail(job="j1", lease=lease, error=error), InvalidRequestError)

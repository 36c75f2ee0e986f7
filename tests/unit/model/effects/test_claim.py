"""How jobs are handed out: in order, on time, each attempt under a lease of its own."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketq.errors import InvalidRequestError
from bucketq.model.operations import Cancel, Claim, Pause, Redrive, Release, Resume
from tests.unit.model.driver import SECRET, Driver, lease_of


@pytest.fixture
def queue() -> Driver:
    return Driver(backoff={"base_s": 10.0})


def test_jobs_are_claimed_in_the_order_of_their_pushes(queue: Driver) -> None:
    queue.push_many("c", "a", "b")
    assert queue.claim_ids() == ["c", "a", "b"]


def test_a_smaller_priority_goes_first(queue: Driver) -> None:
    for job_id, priority in (("p1", 1), ("p0", 0), ("m5", -5), ("p0b", 0), ("m5b", -5)):
        queue.push(job_id, priority=priority)
    assert queue.claim_ids() == ["m5", "m5b", "p0", "p0b", "p1"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from("abc")), max_size=30))
def test_order_goes_across_kinds(jobs: list[tuple[int, str]]) -> None:
    queue = Driver()
    for number, (priority, kind) in enumerate(jobs):
        queue.push(f"j{number}", kind, priority=priority)
    claimed = [job.order for job in queue.claim(limit=100)]
    assert claimed == sorted((p, n + 1) for n, (p, _) in enumerate(jobs))


def test_claims_of_one_take_what_a_claim_of_many_takes(queue: Driver) -> None:
    for number in range(10):
        queue.push(f"j{number}", "ab"[number % 2], priority=number % 3)
    queue.commit()
    several = Driver()
    several.state = queue.state
    one_by_one = [queue.claim_one().id for _ in range(5)]
    rest = several.claim_ids()
    jobs = sorted(queue.state.jobs, key=lambda job: job.order)
    assert one_by_one + rest == [job.id for job in jobs]


def test_a_claim_of_some_kinds_takes_no_other(queue: Driver) -> None:
    for job_id, kind in (("j1", "a"), ("j2", "b"), ("j3", "c"), ("j4", "a")):
        queue.push(job_id, kind)
    assert queue.claim_ids("c", "a", "a") == ["j1", "j3", "j4"]
    assert queue.claim_ids("never") == []
    assert queue.claim_ids() == ["j2"]


def test_a_claim_takes_no_more_than_its_limit(queue: Driver) -> None:
    queue.push_many("j1", "j2", "j3")
    assert queue.claim_ids(limit=2) == ["j1", "j2"]
    assert queue.claim_ids(limit=2) == ["j3"]


def test_a_claimed_job_runs_and_is_not_claimed_again(queue: Driver) -> None:
    queue.push("j1")
    (job,) = queue.claim(worker="ann")
    assert (job.status, job.attempt, job.worker) == ("running", 1, "ann")
    assert (job.claimed_at, job.heartbeat_at, job.run_at) == (queue.now, queue.now, None)
    assert queue.job("j1") == job
    assert queue.claim_ids() == []


def test_an_empty_claim_changes_nothing(queue: Driver) -> None:
    queue.push("j1", delay_s=5.0)
    applied = queue.send(Claim(worker="w", secret=SECRET), "s", number=1)
    assert (applied.answer, applied.changes) == ((), [])
    assert len(queue.state.sessions) == 0


def test_a_claim_that_was_empty_may_take_a_job_when_it_comes_again(queue: Driver) -> None:
    claim = Claim(worker="w", secret=SECRET)
    assert queue.ok(claim, "s", number=1) == ()
    queue.push("j1")
    (job,) = queue.ok(claim, "s", number=1, since=0)
    assert job.id == "j1"


def test_a_delayed_job_is_claimed_on_time_and_not_before(queue: Driver) -> None:
    queue.push("later", delay_s=5.0)
    queue.push("now")
    assert queue.claim_ids() == ["now"]
    queue.wait(4.999)
    assert queue.claim_ids() == []
    queue.wait(0.001)
    assert queue.claim_ids() == ["later"]


def test_a_delayed_job_takes_its_old_place_when_its_time_has_come(queue: Driver) -> None:
    queue.push("first", delay_s=5.0)
    queue.push_many("second", "third")
    queue.wait(5)
    assert queue.claim_ids() == ["first", "second", "third"]


def test_a_clock_that_is_set_back_makes_a_delayed_job_wait_again(queue: Driver) -> None:
    queue.push("later", delay_s=5.0)
    queue.push("last", priority=1)
    queue.wait(6)
    queue.ok(Pause())
    queue.ok(Resume())
    assert queue.claim_ids("never") == []
    queue.wait(-6)
    assert queue.claim_ids(limit=1) == ["last"]
    queue.wait(6)
    assert queue.claim_ids() == ["later"]


def test_next_due_is_when_the_next_delayed_job_is_due(queue: Driver) -> None:
    assert queue.state.next_due() is None
    queue.push("j1", delay_s=5.0)
    queue.push("j2", delay_s=9.0)
    due = queue.now + timedelta(seconds=9)
    queue.ok(Cancel(job="j1"))
    assert queue.state.next_due() == due
    queue.wait(9)
    queue.claim()
    assert queue.state.next_due() is None


@pytest.mark.parametrize("delay_s", [0.0, 30.0])
def test_a_released_job_keeps_its_place(queue: Driver, delay_s: float) -> None:
    queue.push_many("first", "second")
    job = queue.claim_one()
    queue.ok(Release(job=job.id, lease=lease_of(job), delay_s=delay_s))
    queue.push("third")
    queue.wait(delay_s)
    assert queue.claim_ids() == ["first", "second", "third"]


def test_a_retried_job_keeps_its_place(queue: Driver) -> None:
    queue.push_many("first", "second")
    queue.fail(queue.claim_one())
    queue.wait(10)
    assert queue.claim_ids() == ["first", "second"]


def test_a_job_whose_lease_was_lost_keeps_its_place(queue: Driver) -> None:
    queue.push_many("first", "second")
    queue.expire(queue.claim_one())
    assert queue.claim_ids() == ["first", "second"]


def test_a_redriven_job_keeps_its_place(queue: Driver) -> None:
    queue.push_many("first", "second")
    queue.fail(queue.claim_one(), retry=False)
    queue.ok(Redrive())
    assert queue.claim_ids() == ["first", "second"]


def test_a_cancelled_job_is_skipped(queue: Driver) -> None:
    queue.push_many("j1", "j2", "j3")
    queue.ok(Cancel(job="j2"))
    assert queue.claim_ids() == ["j1", "j3"]


@pytest.mark.parametrize("delay_s", [None, 5.0])
@pytest.mark.parametrize("kind", ["a", "b"])
def test_a_job_that_left_is_not_mistaken_for_a_later_one_with_its_id(
    queue: Driver, kind: str, delay_s: float | None
) -> None:
    queue.push("again", "a", delay_s=delay_s)
    queue.push("j1", "b")
    queue.push("j2", "a")
    queue.ok(Cancel(job="again"))
    queue.let_go("again")
    queue.push("again", kind, delay_s=delay_s)
    assert queue.state.next_due() == queue.job("again").run_at
    queue.wait(5)
    expected = {"a": ["j2"], "b": ["j1"]}
    expected[kind].append("again")
    assert queue.claim_ids("a") == expected["a"]
    assert queue.claim_ids("b") == expected["b"]


def test_a_paused_queue_hands_out_nothing(queue: Driver) -> None:
    queue.push("j1")
    queue.ok(Pause())
    assert queue.claim_ids() == []
    queue.ok(Resume())
    assert queue.claim_ids() == ["j1"]


def test_a_paused_kind_is_skipped(queue: Driver) -> None:
    queue.push("j1", "a")
    queue.push("j2", "b")
    queue.ok(Pause(kind="a"))
    assert queue.claim_ids("a") == []
    assert queue.claim_ids() == ["j2"]
    queue.ok(Resume(kind="a"))
    assert queue.claim_ids() == ["j1"]


def test_a_retried_claim_answers_the_same_jobs(queue: Driver) -> None:
    queue.push_many("j1", "j2", "j3")
    claim = Claim(worker="w", secret=SECRET, limit=2)
    first = queue.ok(claim, "s", number=1)
    queue.reload()
    again = queue.send(claim, "s", number=1, since=0)
    assert again.answer == first
    assert again.changes == []
    assert queue.claim_ids() == ["j3"]


def test_a_retried_claim_leaves_out_what_is_held_no_longer(queue: Driver) -> None:
    queue.push_many("done", "lost", "held")
    claim = Claim(worker="w", secret=SECRET, limit=3)
    done, lost, held = queue.ok(claim, "s", number=1)
    queue.complete(done)
    queue.expire(lost)
    (other,) = queue.claim()
    assert other.id == "lost"
    assert queue.ok(claim, "s", number=1, since=0) == (held,)


def test_a_lease_is_new_at_each_attempt(queue: Driver) -> None:
    queue.push("j1")
    leases = set()
    for _ in range(4):
        job = queue.claim_one()
        leases.add(lease_of(job))
        queue.ok(Release(job="j1", lease=lease_of(job)))
    assert len(leases) == 4
    assert queue.job("j1").attempt == 4


def test_a_lease_follows_from_secret_job_and_attempt() -> None:
    def leases(secret: str) -> list[str]:
        queue = Driver()
        queue.push_many("j1", "j2")
        return [lease_of(job) for job in queue.ok(Claim(worker="w", secret=secret, limit=2))]

    once, twice, other = leases("a" * 32), leases("a" * 32), leases("b" * 32)
    assert once == twice
    assert len({*once, *other}) == 4
    assert all(len(lease) == 32 for lease in once)


@pytest.mark.parametrize("secret", ["", "f" * 31, "\ud800" * 32, 5])
def test_a_claim_without_a_good_secret_is_refused(queue: Driver, secret: str) -> None:
    queue.push("j1")
    queue.refused(Claim(worker="w", secret=secret), InvalidRequestError)
    assert queue.claim_ids() == ["j1"]


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.0, True])
def test_a_claim_with_a_bad_limit_is_refused(queue: Driver, limit: int) -> None:
    queue.refused(Claim(worker="w", secret=SECRET, limit=limit), InvalidRequestError)


def test_a_retried_claim_never_gets_the_lease_of_a_later_job_with_the_same_id(
    queue: Driver,
) -> None:
    claim = Claim(worker="first", secret=SECRET)
    queue.push("a")
    [job] = queue.ok(claim, "s", number=1)
    queue.complete(job)
    queue.let_go("a")
    queue.push("a")
    [again] = queue.claim(worker="second")
    assert (again.id, again.attempt) == (job.id, job.attempt)
    assert queue.ok(claim, "s", number=1) == ()


@pytest.mark.parametrize(
    ("session", "fields"),
    [
        ("s" * 300, {"number": 1}),
        ("lone \ud800", {"number": 1}),
        ("s", {"number": -1}),
        ("s", {"number": 1, "acknowledged_below": -1}),
        ("s", {"number": 1, "since": 2**70}),
    ],
)
def test_a_request_with_a_senseless_id_is_refused(
    queue: Driver, session: str, fields: dict[str, int]
) -> None:
    applied = queue.send(Claim(worker="w", secret=SECRET), session, **fields)
    assert isinstance(applied.error, InvalidRequestError)


def test_a_lease_of_its_own_length_lasts_as_long_as_the_attempt() -> None:
    queue = Driver()
    queue.push_many("1", "2", "3", "4")
    jobs = queue.claim(limit=4, lease_s=600.0)
    assert {job.lease_s for job in jobs} == {600.0}
    queue.complete(jobs[0])
    queue.fail(jobs[1])
    queue.expire(jobs[2])
    queue.ok(Release(job="4", lease=lease_of(jobs[3])))
    assert {queue.job(job.id).lease_s for job in jobs} == {None}
    queue.wait(60)
    assert {job.lease_s for job in queue.claim(limit=4)} == {None}


@pytest.mark.parametrize("lease_s", [0, -1.0, 7 * 86400.0 + 1, float("nan"), True, "60"])
def test_a_lease_must_have_a_length_that_makes_sense(lease_s: Any) -> None:
    queue = Driver()
    claim = Claim(worker="w", secret=SECRET, lease_s=lease_s)
    assert "lease_s" in queue.refused(claim, InvalidRequestError)

"""Jobs that a completion pushes: which of them are added, and when a completion is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import InvalidRequestError, LeaseLostError, PayloadTooLargeError
from bucketq.model.base import NewJob
from bucketq.model.effects.access import missing_right
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Configure,
    Push,
    Release,
    Request,
)
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from bucketq.model.tokens import Right
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, Driver, lease_of, new_job


@pytest.fixture
def queue() -> Driver:
    return Driver(max_format=2)


def done(job: JobRecord, *jobs: NewJob) -> Complete:
    return Complete(job=job.id, lease=lease_of(job), follow_ups=jobs)


def held(queue: Driver, job_id: str = "j1", **fields: Any) -> JobRecord:
    """A job that was pushed and claimed."""
    queue.push(job_id, "first", **fields)
    return queue.claim_one("first")


def waiting(queue: Driver) -> list[str]:
    return [job.id for job in queue.state.jobs if job.status == "queued"]


def test_follow_ups_are_added_when_the_job_is_completed(queue: Driver) -> None:
    job = held(queue)
    queue.ok(done(job, new_job("f1", delay_s=5.0, tags={"of": "j1"}), new_job("f2", "mail")))
    assert queue.job("j1").outcome == "completed"
    assert queue.claim_ids() == ["f2"]
    assert queue.job("f1").tags == {"of": "j1"}
    queue.wait(5)
    assert queue.claim_ids() == ["f1"]


def test_a_completion_that_is_repeated_adds_nothing(queue: Driver) -> None:
    job = held(queue)
    complete = done(job, new_job("f1"))
    queue.ok(complete, "s", number=1)
    queue.ok(complete, "s", number=1)
    queue.ok(complete, "other", number=1)
    queue.ok(done(job, new_job("f2")))
    assert waiting(queue) == ["f1"]


def test_a_completion_whose_lease_was_lost_adds_nothing(queue: Driver) -> None:
    job = held(queue)
    queue.expire(job)
    queue.refused(done(job, new_job("f1")), LeaseLostError)
    again = queue.claim_one()
    both = [
        Completion(job=each.id, lease=lease_of(each), follow_ups=(new_job(name),))
        for each, name in ((job, "f2"), (again, "f3"))
    ]
    assert queue.ok(CompleteMany(jobs=tuple(both))) == (False, True)
    assert waiting(queue) == ["f3"]


def test_a_job_that_stands_twice_in_a_request_pushes_once(queue: Driver) -> None:
    job = held(queue)
    twice = [
        Completion(job=job.id, lease=lease_of(job), follow_ups=(new_job(name),))
        for name in ("f1", "f2")
    ]
    assert queue.ok(CompleteMany(jobs=tuple(twice))) == (True, True)
    assert waiting(queue) == ["f1"]


def test_a_released_job_has_pushed_nothing(queue: Driver) -> None:
    job = held(queue)
    queue.ok(Release(job=job.id, lease=lease_of(job)))
    queue.refused(done(job, new_job("f1")), LeaseLostError)
    assert waiting(queue) == ["j1"]


def test_a_job_whose_cancellation_was_requested_can_complete_and_push(queue: Driver) -> None:
    job = held(queue)
    queue.ok(Cancel(job=job.id))
    queue.ok(done(job, new_job("f1")))
    assert waiting(queue) == ["f1"]


def test_a_full_queue_takes_the_follow_ups_of_a_completion(queue: Driver) -> None:
    queue.ok(Configure(changes={"max_jobs": 2, "max_kinds": 1, "max_keys": 1}))
    job = held(queue, key="k1")
    queue.push("j2", "first")
    queue.ok(done(job, *(new_job(f"f{n}", f"kind-{n}", key=f"k{n + 2}") for n in range(5))))
    assert len(waiting(queue)) == 6
    assert queue.send(Push(jobs=(new_job("j3", "first"),))).error is not None


def test_a_taken_id_key_or_name_refuses_no_completion(queue: Driver) -> None:
    queue.push("there", payload=1, key="k", unique="u")
    job = held(queue)
    queue.ok(
        done(
            job,
            new_job("there", payload=2),
            new_job("f1", payload=2, key="k"),
            new_job("f2", payload=2, unique="u"),
            new_job("f3"),
        )
    )
    assert waiting(queue) == ["there", "f3"]
    assert bytes(queue.job("there").payload) == b"1"


def test_a_follow_up_can_replace_a_job_that_waits(queue: Driver) -> None:
    queue.push("there", payload=1, unique="u")
    queue.ok(done(held(queue), new_job("f1", payload=2, unique="u", replace="payload")))
    assert waiting(queue) == ["there"]
    assert bytes(queue.job("there").payload) == b"2"


def test_the_jobs_of_one_request_replace_each_other_in_order(queue: Driver) -> None:
    jobs = [held(queue, job_id) for job_id in ("j1", "j2")]
    last = [
        Completion(
            job=job.id,
            lease=lease_of(job),
            follow_ups=(new_job(f"f-{job.id}", payload=job.id, unique="u", replace="payload"),),
        )
        for job in jobs
    ]
    assert queue.ok(CompleteMany(jobs=tuple(last))) == (True, True)
    assert waiting(queue) == ["f-j1"]
    assert bytes(queue.job("f-j1").payload) == b'"j2"'


def test_a_job_can_push_its_successor_of_the_same_name(queue: Driver) -> None:
    job = held(queue, unique="poll")
    queue.ok(done(job, new_job("f1", "first", unique="poll")))
    assert waiting(queue) == ["f1"]
    duplicate = queue.ok(Push(jobs=(new_job("j2", "first", unique="poll"),)))
    assert duplicate == ("f1",)


@pytest.mark.parametrize(
    "jobs",
    [
        [new_job("f", kind="bad kind")],
        [new_job("f"), new_job("f")],
        [new_job("f1", key="k"), new_job("f2", key="k")],
        [new_job("f1", unique="u"), new_job("f2", unique="u")],
        [new_job("f", unique="u", unique_s=1e9)],
        [new_job(f"f{n}") for n in range(1001)],
    ],
)
def test_a_completion_with_a_job_that_can_never_be_pushed_is_refused(
    queue: Driver, jobs: list[NewJob]
) -> None:
    job = held(queue)
    queue.refused(done(job, *jobs), InvalidRequestError)
    assert queue.job("j1").status == "running"


def test_a_completion_pushes_a_mebibyte_and_no_more(queue: Driver) -> None:
    job = held(queue)
    large = Raw(b'"' + b"x" * ((1 << 19) - 2) + b'"')
    jobs = [NewJob(id=f"f{n}", kind="k", payload=large) for n in range(3)]
    assert "1,048,576 bytes" in queue.refused(done(job, *jobs), PayloadTooLargeError)
    queue.ok(done(job, *jobs[:2]))


def test_what_the_format_does_not_allow_is_the_fault_of_the_job() -> None:
    queue = Driver(max_format=1)
    job = held(queue)
    for fields in ({"unique": "u"}, {"expires_in_s": 5.0}):
        reason = queue.refused(done(job, new_job("f", **fields)), InvalidRequestError)
        assert "max_format" in reason


def test_follow_ups_need_the_right_to_push() -> None:
    only_claim: tuple[Right, ...] = ("claim",)
    only_push: tuple[Right, ...] = ("push",)
    plain, pushing = Complete(job="j", lease="l"), done(JobRecord(**_RUNNING), new_job("f"))
    many = CompleteMany(jobs=(Completion(job="j", lease="l", follow_ups=(new_job("f"),)),))
    assert missing_right(only_claim, plain) is None
    assert missing_right(only_claim, pushing) == missing_right(only_claim, many) == "push"
    assert missing_right(only_push, pushing) == "claim"
    assert missing_right(only_claim + only_push, pushing) is None
    admin: tuple[Right, ...] = ("admin",)
    assert missing_right(admin, many) is None


_RUNNING: dict[str, Any] = {
    "id": "j",
    "kind": "k",
    "status": "running",
    "seq": 1,
    "payload": Raw(b"1"),
    "pushed_at": START,
    "lease": "l",
}


@pytest.mark.parametrize("replacement", [None, "both"])
@pytest.mark.parametrize("is_reloaded", [True, False])
def test_names_and_ids_in_segments_are_found(replacement: Any, *, is_reloaded: bool) -> None:
    deep = DeepState(State(incarnation="test", created_at=START))

    def send(operation: AnyOperation) -> Any:
        return deep.apply(Request(operation), START).result()

    send(Configure(changes={"max_format": 2}))
    there = new_job("there", payload=1, unique="u"), new_job("other", payload=1, unique="other")
    send(Push(jobs=(new_job("j1", "first", unique="u"), *there)))
    (job,) = send(Claim(worker="w", secret=SECRET, kinds=("first",)))
    spilled = deep.spill("ready", START, 100)
    assert spilled is not None
    send(spilled)
    if is_reloaded:
        deep.reload()
    send(
        done(
            job,
            new_job("other", payload=3),
            new_job("f1", payload=2, unique="u", replace=replacement),
            new_job("f2", "first", unique="u"),
        )
    )
    rows = {each.id: bytes(each.payload) for each in deep.jobs() if each.status == "queued"}
    payload = b"1" if replacement is None else b"2"
    assert rows == {"there": payload, "other": b"1", "f2": b"null"}

"""Everything has a limit; the error names the setting to change, and nothing is lost."""

from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import (
    BucketQError,
    InvalidRequestError,
    PayloadTooLargeError,
    QueueFullError,
)
from bucketq.model.effects import room
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Configure,
    Fail,
    Heartbeat,
    LeaseRef,
    List,
    Push,
    Release,
)
from tests.unit.model.driver import SECRET, Driver, lease_of, new_job, ref


def push(count: int, **fields: Any) -> Push:
    return Push(jobs=tuple(new_job(f"n{number}", **fields) for number in range(count)))


def keyed(count: int) -> Push:
    return Push(jobs=tuple(new_job(f"n{number}", key=f"k{number}") for number in range(count)))


def of_kinds(count: int) -> Push:
    return Push(jobs=tuple(new_job(f"n{number}", f"kind{number}") for number in range(count)))


def tagged(count: int) -> Push:
    return push(1, tags={f"tag{number}": "" for number in range(count)})


def claim(limit: int) -> Claim:
    return Claim(worker="w", secret=SECRET, limit=limit)


def beat(count: int) -> Heartbeat:
    return Heartbeat(leases=(LeaseRef("j", "x"),) * count)


@pytest.mark.parametrize(
    ("setting", "limit", "within", "beyond", "error"),
    [
        ("max_jobs", 3, push(3), push(4), QueueFullError),
        ("max_keys", 3, keyed(3), keyed(4), QueueFullError),
        ("max_kinds", 3, of_kinds(3), of_kinds(4), QueueFullError),
        ("max_bytes", 412, push(2, payload="1234"), push(2, payload="12345"), QueueFullError),
        ("max_tags", 3, tagged(3), tagged(4), InvalidRequestError),
        ("max_tags", 0, tagged(0), tagged(1), InvalidRequestError),
        ("max_batch_jobs", 3, push(3), push(4), InvalidRequestError),
        ("max_payload_bytes", 6, push(1, payload="1234"), push(1, payload="12345"), None),
        ("max_batch_bytes", 12, push(2, payload="1234"), push(2, payload="12345"), None),
    ],
)
def test_a_push_at_the_limit_is_taken_and_one_beyond_it_is_refused(
    setting: str, limit: int, within: Push, beyond: Push, error: type[BucketQError] | None
) -> None:
    queue = Driver(**{setting: limit})
    message = queue.refused(beyond, error or PayloadTooLargeError)
    assert f"({setting})" in message
    assert f"{limit}" in message
    queue.ok(within)


@pytest.mark.parametrize(
    ("within", "beyond"),
    [(claim(3), claim(4)), (beat(3), beat(4)), (List(limit=3), List(limit=4))],
)
def test_no_request_takes_more_jobs_than_a_batch_may_have(
    within: AnyOperation, beyond: AnyOperation
) -> None:
    queue = Driver(max_batch_jobs=3)
    queue.ok(within)
    assert "3" in queue.refused(beyond, InvalidRequestError)


JOINED: dict[str, Any] = {"session": "s", "number": 1, "numbers": (1, 2, 3)}


@pytest.mark.parametrize(
    ("setting", "limit", "within", "beyond"),
    [
        ("max_batch_jobs", 3, {"counts": (3, 1, 3)}, {"counts": (2, 1, 4)}),
        ("max_batch_bytes", 18, {"counts": (3, 1, 3)}, {"counts": (1, 4, 2)}),
    ],
)
def test_the_limits_of_a_batch_are_those_of_each_push_that_is_joined(
    setting: str, limit: int, within: dict[str, Any], beyond: dict[str, Any]
) -> None:
    queue, seven = Driver(**{setting: limit}), push(7, payload="1234")
    error = InvalidRequestError if setting == "max_batch_jobs" else PayloadTooLargeError
    message = queue.refused(seven, error, **JOINED, **beyond)
    assert f"{limit}" in message
    assert ("4 jobs" if setting == "max_batch_jobs" else "24 bytes") in message
    queue.ok(seven, **JOINED, **within)


def test_calls_for_one_job_that_are_joined_are_no_batch() -> None:
    queue = Driver(max_batch_jobs=2, max_batch_bytes=6)
    queue.ok(push(3, payload="1234"), **JOINED)
    jobs = queue.ok(claim(3), "s", number=4, numbers=(4, 5, 6))
    done = tuple(Completion(job=job.id, lease=lease_of(job)) for job in jobs)
    queue.refused(CompleteMany(jobs=done), InvalidRequestError)
    assert queue.ok(CompleteMany(jobs=done), "s", number=7, numbers=(7, 8, 9)) == (True,) * 3


def test_joined_pushes_have_a_limit_together() -> None:
    queue = Driver(max_batch_jobs=5000, max_batch_bytes=6 << 10)
    joined: dict[str, Any] = {"session": "s", "number": 1, "numbers": (1, 2, 3)}
    message = queue.refused(push(10_001), InvalidRequestError, **joined, counts=(5000, 5000, 1))
    assert "10001 jobs in joined pushes, at most 10000" in message
    joined["numbers"] = tuple(range(1, 601))
    many = push(600, payload="x" * 4000)
    assert "joined" in queue.refused(many, PayloadTooLargeError, **joined)
    joined["numbers"] = tuple(range(1, 501))
    queue.ok(push(500, payload="x" * 4000), **joined)


def test_a_limit_counts_what_is_there_already() -> None:
    queue = Driver(max_jobs=3)
    queue.push_many("j1", "j2")
    queue.refused(push(2), QueueFullError)
    queue.ok(push(1))


@pytest.mark.parametrize("reload", [False, True])
def test_finished_jobs_do_not_fill_a_queue(reload: bool) -> None:
    queue = Driver(max_jobs=1, max_kinds=1, max_bytes=4000)
    for number in range(30):
        queue.push(f"j{number}", f"kind{number}", payload="x" * 1000)
        queue.complete(queue.claim_one())
        queue.commit()
    if reload:
        queue.reload()
    assert queue.state.size_bytes > 30_000
    queue.push("last")
    assert "max_jobs" in queue.refused(push(1), QueueFullError)


def test_what_waits_is_refused_at_the_same_size_whether_jobs_finished_or_left_since() -> None:
    queue = Driver()
    for number in range(9):
        queue.push(f"j{number}", payload="x" * 1000)
        queue.complete(queue.claim_one())
    queue.commit()
    queue.ok(Configure(changes={"max_bytes": 4000}))
    queue.let_go(*(f"j{number}" for number in range(9)))
    queue.ok(push(2, payload="y" * 1000))
    queue.commit()
    assert "max_bytes" in queue.refused(push(4, payload="y" * 1000), QueueFullError)


def test_finished_jobs_that_are_not_archived_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "_LEAST_OUTBOX_BYTES", 2000)
    queue = Driver(max_bytes=4000)
    while queue.state.done.size_bytes <= 4000:
        queue.push(f"j{len(queue.state.jobs)}")
        queue.complete(queue.claim_one())
    message = queue.refused(push(1), QueueFullError)
    assert "bucketq archive flush" in message
    assert "archiving fails" not in message
    queue.state.archive_trouble = "no space left"
    assert "archiving fails: no space left" in queue.refused(push(1), QueueFullError)
    queue.ok(Configure(changes={"max_bytes": 9000}))
    queue.ok(push(1))


def test_a_known_job_takes_no_room() -> None:
    queue = Driver(max_jobs=1, max_keys=1)
    queue.push("j1", key="k")
    assert queue.push("j2", key="k") == "j1"
    assert queue.push("j1", key="k") == "j1"


def test_a_key_that_is_expired_makes_room_for_itself() -> None:
    queue = Driver(max_keys=1, key_retention_s=10.0)
    queue.push("j1", key="k")
    queue.wait(11)
    assert queue.push("j2", key="k") == "j2"
    queue.refused(Push(jobs=(new_job("j3", key="other"),)), QueueFullError)


def test_a_push_without_a_key_is_taken_though_keys_are_full() -> None:
    queue = Driver(max_keys=1)
    queue.push("j1", key="k")
    queue.push("j2")


def test_a_kind_that_is_there_is_taken_though_kinds_are_full() -> None:
    queue = Driver(max_kinds=1)
    queue.push("j1", "a")
    queue.push("j2", "a")
    queue.refused(Push(jobs=(new_job("j3", "b"),)), QueueFullError)


def test_bytes_count_what_was_written_and_what_was_pushed_since() -> None:
    queue = Driver()
    queue.push("j1")
    queue.commit()
    size_bytes = queue.state.size_bytes
    queue.ok(Configure(changes={"max_bytes": size_bytes + 2 * 204}))
    queue.push_many("j2", "j3")
    message = queue.refused(push(1), QueueFullError)
    assert f"{size_bytes + 2 * 204:,}" in message


def test_a_full_queue_refuses_pushes_and_nothing_else() -> None:
    queue = Driver(max_jobs=5, backoff={"base_s": 0.0})
    queue.push_many("j1", "j2", "j3", "j4", "j5")
    queue.ok(Configure(changes={"max_jobs": 1, "max_bytes": 1, "max_kinds": 1}))
    queue.commit()
    assert "try again" in queue.refused(push(1), QueueFullError)
    one, two, three, four = queue.claim(limit=4)
    assert all(pulse.held for pulse in queue.ok(Heartbeat(leases=(ref(one), ref(two)))))
    queue.ok(Complete(job="j1", lease=lease_of(one), result=Raw(b'"a result"')))
    assert queue.fail(two) == "queued"
    queue.ok(Release(job="j3", lease=lease_of(three)))
    queue.expire(four)
    queue.ok(Cancel(job="j5"))
    assert queue.claim_ids() == ["j2", "j3", "j4"]


def test_a_result_at_the_limit_is_taken_and_one_beyond_it_is_refused() -> None:
    queue = Driver(max_result_bytes=6)
    queue.push("j1")
    lease = lease_of(queue.claim_one())
    beyond = Complete(job="j1", lease=lease, result=Raw(b'"12345"'))
    message = queue.refused(beyond, PayloadTooLargeError)
    assert "(max_result_bytes)" in message
    assert "result too large: 7 bytes" in message
    queue.ok(Complete(job="j1", lease=lease, result=Raw(b'"1234"')))


def test_a_limit_that_is_lowered_takes_nothing_away() -> None:
    queue = Driver()
    queue.push("j1", payload="x" * 100, tags={"a": "1", "b": "2"}, key="k")
    queue.push("j2", key="k2")
    changes = {"max_payload_bytes": 1, "max_tags": 0, "max_keys": 1, "max_jobs": 1}
    queue.ok(Configure(changes=changes))
    queue.reload()
    assert queue.claim_ids() == ["j1", "j2"]


def test_an_error_beyond_its_limit_is_cut_and_not_refused() -> None:
    queue = Driver(max_error_bytes=4)
    queue.push("j1")
    lease = lease_of(queue.claim_one())
    queue.ok(Fail(job="j1", lease=lease, error="far too long"))
    assert queue.job("j1").errors[0].error == "far "

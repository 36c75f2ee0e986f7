"""Calls that were not applied yet: bounded, and the important first."""

from __future__ import annotations

import pytest
from msgspec import Raw

from bucketq.broker.inbox import Inbox
from bucketq.commit.pending_requests import MAX_PENDING, MAX_PENDING_BYTES, PendingRequest
from bucketq.errors import OverloadedError, UnavailableError
from bucketq.model import numbered_batches
from bucketq.model import operations as ops
from bucketq.model.base import NewJob

PUSH = ops.Push(jobs=(NewJob(id="j", kind="k", payload=Raw(b"1")),))
CLAIM = ops.Claim(worker="w", secret="s" * 32)
READ = ops.ReadStats()
URGENT: list[ops.AnyOperation] = [
    ops.Heartbeat(leases=()),
    ops.Complete(job="j", lease="l"),
    ops.CompleteMany(jobs=()),
    ops.Fail(job="j", lease="l", error="e"),
    ops.Release(job="j", lease="l"),
    ops.ReleaseMany(leases=()),
    numbered_batches.AckBatch(consumer="c", epoch=1, batch=1),
    numbered_batches.ReleaseBatch(consumer="c", epoch=1, batch=1),
    numbered_batches.SettleBatch(consumer="c", batch=1, jobs=()),
]
PUBLISH = numbered_batches.Publish(writer="w", batch=1, jobs=())


class Call(PendingRequest):
    """A call of a client that keeps its error."""

    error: Exception | None = None

    def resolve(self, answer: object, error: Exception | None) -> None:
        self.error = error


def call(operation: ops.AnyOperation, size_bytes: int = 0, expires_at: float = 1000.0) -> Call:
    made = Call(ops.Request(operation), 0, 0.0)
    made.size_bytes, made.expires_at = size_bytes, expires_at
    return made


class Box(Inbox):
    """The inbox of a broker that has applied some calls and not answered them."""

    def __init__(self, calls: int = 0, size_bytes: int = 0, pace_s: float = 0.0) -> None:
        super().__init__()
        self._load = ((calls, size_bytes), pace_s)

    def add(self, call: PendingRequest) -> None:
        self.put(call, *self._load)


def names(calls: list[PendingRequest]) -> list[str]:
    return [type(call.request.operation).__name__ for call in calls]


def test_calls_that_finish_work_are_applied_before_calls_that_add_work() -> None:
    box = Box()
    for operation in (PUSH, CLAIM, READ, *URGENT):
        box.add(call(operation))
    assert names(box.take(0)) == [
        "Heartbeat",
        "Complete",
        "CompleteMany",
        "Fail",
        "Release",
        "ReleaseMany",
        "AckBatch",
        "ReleaseBatch",
        "SettleBatch",
        "Claim",
        "ReadStats",
        "Push",
    ]
    assert len(box) == 0


def test_a_withdrawal_does_not_overtake_its_claim() -> None:
    box = Box()
    box.add(call(CLAIM))
    box.add(call(ops.Withdraw(session="s", number=1, secret="s" * 32)))
    assert names(box.take(0)) == ["Claim", "Withdraw"]


def test_calls_of_one_rank_keep_their_order() -> None:
    box = Box()
    calls = [call(PUSH) for _ in range(10)]
    for each in calls:
        box.add(each)
    assert box.take(0) == calls


def test_a_portion_is_bounded_so_that_other_tasks_run() -> None:
    box = Box()
    for _ in range(1000):
        box.add(call(PUSH))
    assert len(box.take(0)) == 256
    box.add(call(URGENT[1]))
    assert names(box.take(0))[:2] == ["Complete", "Push"]


def test_an_expired_call_is_dropped_before_it_is_applied() -> None:
    box = Box()
    expired, late = call(PUSH, expires_at=10, size_bytes=7), call(PUSH, expires_at=10.1)
    box.add(expired)
    box.add(late)
    assert box.take(10) == [late]
    assert isinstance(expired.error, UnavailableError)
    assert late.error is None
    assert len(box) == 0
    box.add(call(PUSH, size_bytes=MAX_PENDING_BYTES))  # The dropped call no longer counts.


@pytest.mark.parametrize(
    ("operation", "room"),
    [(PUSH, 0.75), (PUBLISH, 0.75), (CLAIM, 1.0), (READ, 1.0), *((op, 2.0) for op in URGENT)],
)
def test_pushes_are_rejected_first_and_completions_last(
    operation: ops.AnyOperation, room: float
) -> None:
    Box(calls=int(room * MAX_PENDING) - 1).add(call(operation))
    with pytest.raises(OverloadedError, match="calls"):
        Box(calls=int(room * MAX_PENDING)).add(call(operation))
    Box(1, int(room * MAX_PENDING_BYTES) - 100).add(call(operation, size_bytes=100))
    with pytest.raises(OverloadedError, match="bytes"):
        Box(1, int(room * MAX_PENDING_BYTES) - 99).add(call(operation, size_bytes=100))


def test_calls_in_the_inbox_count_against_the_bounds() -> None:
    box = Box(calls=int(0.75 * MAX_PENDING) - 2)
    box.add(call(PUSH))
    box.add(call(PUSH))
    with pytest.raises(OverloadedError):
        box.add(call(PUSH))
    full = Box()
    full.add(call(PUSH, size_bytes=int(0.75 * MAX_PENDING_BYTES)))
    with pytest.raises(OverloadedError):
        full.add(call(PUSH, size_bytes=1))
    full.take(0)
    full.add(call(PUSH, size_bytes=1))


def test_a_single_call_larger_than_the_bound_is_left_to_the_queue_to_reject() -> None:
    Box().add(call(PUSH, size_bytes=10 * MAX_PENDING_BYTES))


@pytest.mark.parametrize(("pace_s", "hint_s"), [(0.0, 0.05), (0.02, 0.05), (1.5, 1.5)])
def test_a_rejected_client_retries_after_about_one_write(pace_s: float, hint_s: float) -> None:
    with pytest.raises(OverloadedError) as no:
        Box(calls=MAX_PENDING, pace_s=pace_s).add(call(PUSH))
    assert no.value.retry_after_s == hint_s

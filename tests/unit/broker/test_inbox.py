"""What has come and is not let in yet: bounded, and the important first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec import Raw

from bucketq.broker.inbox import MAX_BYTES, MAX_CALLS, Inbox
from bucketq.errors import OverloadedError
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
]
PUBLISH = numbered_batches.Publish(writer="w", batch=1, jobs=())


@dataclass(eq=False)
class Call:
    request: ops.Request
    size_bytes: int = 0
    expires_at: float = 1000.0


def call(operation: ops.AnyOperation, **fields: float) -> Call:
    return Call(ops.Request(operation), **fields)  # type: ignore[arg-type]


def inbox(
    calls: int = 0,
    size_bytes: int = 0,
    pace_s: float = 0.0,
    drop: Callable[[Call], None] = lambda _: None,
) -> Inbox[Call]:
    """An inbox of a broker that has let in some calls and not answered them."""
    return Inbox(lambda: (calls, size_bytes), lambda: pace_s, drop)


def names(calls: list[Call]) -> list[str]:
    return [type(call.request.operation).__name__ for call in calls]


def test_what_finishes_work_is_let_in_before_what_brings_more() -> None:
    box = inbox()
    for operation in (PUSH, CLAIM, READ, *URGENT):
        box.put(call(operation))
    assert names(box.take(0)) == [
        "Heartbeat",
        "Complete",
        "CompleteMany",
        "Fail",
        "Release",
        "ReleaseMany",
        "AckBatch",
        "ReleaseBatch",
        "Claim",
        "ReadStats",
        "Push",
    ]
    assert len(box) == 0


def test_a_withdrawal_does_not_overtake_its_claim() -> None:
    box = inbox()
    box.put(call(CLAIM))
    box.put(call(ops.Withdraw(session="s", number=1, secret="s" * 32)))
    assert names(box.take(0)) == ["Claim", "Withdraw"]


def test_calls_of_one_kind_are_let_in_as_they_came() -> None:
    box = inbox()
    calls = [call(PUSH) for _ in range(10)]
    for each in calls:
        box.put(each)
    assert box.take(0) == calls


def test_a_portion_is_bounded_so_that_others_get_a_turn() -> None:
    box = inbox()
    for _ in range(1000):
        box.put(call(PUSH))
    assert len(box.take(0)) == 256
    box.put(call(URGENT[1]))
    assert names(box.take(0))[:2] == ["Complete", "Push"]


def test_what_nobody_waits_for_any_more_is_dropped_before_it_is_applied() -> None:
    dropped: list[Call] = []
    box = inbox(drop=dropped.append)
    expired, late = call(PUSH, expires_at=10, size_bytes=7), call(PUSH, expires_at=10.1)
    box.put(expired)
    box.put(late)
    assert box.take(10) == [late]
    assert dropped == [expired]
    assert len(box) == 0
    box.put(call(PUSH, size_bytes=MAX_BYTES))  # What was dropped takes no room any more.


@pytest.mark.parametrize(
    ("operation", "room"),
    [(PUSH, 0.75), (PUBLISH, 0.75), (CLAIM, 1.0), (READ, 1.0), *((op, 2.0) for op in URGENT)],
)
def test_pushes_are_refused_first_and_what_finishes_work_last(
    operation: ops.AnyOperation, room: float
) -> None:
    inbox(calls=int(room * MAX_CALLS) - 1).put(call(operation))
    with pytest.raises(OverloadedError, match="calls"):
        inbox(calls=int(room * MAX_CALLS)).put(call(operation))
    inbox(1, int(room * MAX_BYTES) - 100).put(call(operation, size_bytes=100))
    with pytest.raises(OverloadedError, match="bytes"):
        inbox(1, int(room * MAX_BYTES) - 99).put(call(operation, size_bytes=100))


def test_what_waits_in_the_inbox_counts_as_what_was_let_in() -> None:
    box = inbox(calls=int(0.75 * MAX_CALLS) - 2)
    box.put(call(PUSH))
    box.put(call(PUSH))
    with pytest.raises(OverloadedError):
        box.put(call(PUSH))
    full = inbox()
    full.put(call(PUSH, size_bytes=int(0.75 * MAX_BYTES)))
    with pytest.raises(OverloadedError):
        full.put(call(PUSH, size_bytes=1))
    full.take(0)
    full.put(call(PUSH, size_bytes=1))


def test_a_single_call_that_is_larger_than_everything_is_for_the_queue_to_refuse() -> None:
    inbox().put(call(PUSH, size_bytes=10 * MAX_BYTES))


@pytest.mark.parametrize(("pace_s", "hint_s"), [(0.0, 0.05), (0.02, 0.05), (1.5, 1.5)])
def test_who_is_refused_is_told_to_come_back_after_about_a_write(
    pace_s: float, hint_s: float
) -> None:
    with pytest.raises(OverloadedError) as no:
        inbox(calls=MAX_CALLS, pace_s=pace_s).put(call(PUSH))
    assert no.value.retry_after_s == hint_s

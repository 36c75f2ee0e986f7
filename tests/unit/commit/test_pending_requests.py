"""The backlog of requests: any of very many leaves it at once, and the others keep their order."""

from __future__ import annotations

from time import process_time

from bucketq.commit.pending_requests import MAX_PENDING, Backlog, PendingRequest
from bucketq.model.operations import Get, Request


def full() -> tuple[Backlog, list[PendingRequest]]:
    """A backlog with as many requests as it may have, half of them in flight."""
    backlog, added = Backlog(), list[PendingRequest]()
    for number in range(MAX_PENDING):
        added.append(PendingRequest(Request(Get(job="a")), 0, 0.0))
        backlog.add(added[-1])
        if number == MAX_PENDING // 2:
            backlog.send()
    return backlog, added


def test_requests_that_wait_for_rows_leave_a_full_backlog_at_once() -> None:
    """While they do, nothing else happens in the process; one by one they took half a minute."""
    backlog, added = full()
    began_s = process_time()
    for pending in added[::-2]:
        backlog.set_aside(pending)
    assert process_time() - began_s < 5
    assert list(backlog) == added[::2] + added[::-2]
    assert len(backlog) == MAX_PENDING


def test_requests_keep_their_order_when_some_leave_or_are_put_back() -> None:
    backlog, added = full()
    in_flight = list(backlog.in_flight)
    backlog.postpone(in_flight[5:])
    assert list(backlog) == added
    backlog.put_back()
    assert list(backlog.batch) == added
    backlog.drop(added[7])
    backlog.set_aside(added[9])
    assert backlog.take_back(added[9])
    assert not backlog.take_back(added[9])
    left = [each for number, each in enumerate(added) if number not in {7, 9}]
    assert list(backlog.batch) == left
    backlog.remove(left[:100])
    assert backlog.clear() == left[100:]
    assert (len(backlog), backlog.size_bytes) == (0, 0)

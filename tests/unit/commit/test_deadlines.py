"""One timer for all callers: each gets its error in time, and no other one."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.commit.deadlines import Deadlines
from bucketq.commit.pending_requests import LocalRequest
from bucketq.model.operations import ReadStats, Request
from bucketq.testing import VirtualLoop, run


def new_request() -> LocalRequest:
    return LocalRequest(Request(ReadStats()), 0, asyncio.get_running_loop())


async def wait_for(deadlines: Deadlines, pending: LocalRequest, limit_s: float) -> float:
    """Wait until a request is answered; return when its time was over."""
    loop = asyncio.get_running_loop()
    deadlines.add(pending, loop.time() + limit_s)
    try:
        with pytest.raises(TimeoutError, match="too late"):
            await pending.answer
    finally:
        deadlines.remove(pending)
    return loop.time()


def test_each_request_ends_at_its_own_deadline() -> None:
    async def main(_: VirtualLoop) -> None:
        deadlines = Deadlines(lambda _: TimeoutError("too late"))
        began_s = asyncio.get_running_loop().time()
        limits = [30.0, 10.0, 20.0, 10.0]
        ended = await asyncio.gather(
            *(wait_for(deadlines, new_request(), limit_s) for limit_s in limits)
        )
        assert [at_s - began_s for at_s in ended] == limits
        assert await wait_for(deadlines, new_request(), 5.0) - began_s == 35.0, "it starts again"

    run(main)


def test_answers_and_cancellations_come_first() -> None:
    async def main(_: VirtualLoop) -> None:
        deadlines = Deadlines(lambda _: TimeoutError("too late"))
        answered, left = new_request(), new_request()
        loop = asyncio.get_running_loop()
        deadlines.add(answered, loop.time() + 10)
        deadlines.add(left, loop.time() + 20)
        cancelled = asyncio.create_task(wait_for(deadlines, new_request(), 5))
        await asyncio.sleep(1)
        answered.resolve("answer", None)
        cancelled.cancel()
        await asyncio.sleep(18)
        assert await answered.answer == "answer"
        assert cancelled.cancelled()
        assert not left.is_resolved
        deadlines.remove(answered)
        deadlines.close()
        await asyncio.sleep(100)
        assert not left.is_resolved, "it was closed"

    run(main)

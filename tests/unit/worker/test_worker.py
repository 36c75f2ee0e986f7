"""``Worker`` itself: where handlers run, how it is stopped, and what it refuses."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

import bucketq
from bucketq import Worker
from bucketq.client.connect import UnopenedQueue
from bucketq.errors import InvalidRequestError

_numbers = itertools.count()


def url() -> str:
    return f"memory://worker-{next(_numbers)}"


async def ends(running: asyncio.Task[None], patience_s: float = 60) -> None:
    await asyncio.wait_for(running, patience_s)


def bucketq_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "bucketq"]


async def test_a_worker_that_is_stopped_before_it_has_begun_ends() -> None:
    for _ in range(50):
        worker = Worker(url())
        worker.handler("mail")(lambda: None)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        worker.stop()
        await ends(running, 5)
    assert not bucketq_threads()


async def test_a_worker_that_is_cancelled_releases_its_jobs_and_leaves_no_thread() -> None:
    inside = asyncio.Event()
    worker = Worker(url())

    @worker.handler("mail")
    async def wait() -> None:
        inside.set()
        await asyncio.sleep(60)

    assert worker.url is not None
    async with bucketq.connect(worker.url) as queue:
        await queue.push("mail", 0)
        running = asyncio.create_task(worker.run())
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ends(running)
        (job,) = (await queue.jobs()).jobs
        assert (job.status, job.failures, job.lost_leases) == ("queued", 0, 0)
    assert not bucketq_threads()


async def test_a_handler_that_blocks_its_loop_does_not_keep_others_from_their_queue() -> None:
    worker = Worker(url(), concurrency=5)
    done = threading.Event()

    @worker.handler("block")
    async def block() -> str:
        return "in time" if done.wait(10) else "too late"

    @worker.handler("plain")
    def plain() -> None:
        done.set()

    assert worker.url is not None
    async with bucketq.connect(worker.url) as queue:
        blocking = await queue.push("block", 0)
        await queue.push("plain", 0)
        await worker.run(burst=True)
        assert (await queue.get(blocking)).result == "in time"


async def test_a_hurried_stop_does_not_wait_for_a_thread_that_does_not_stop() -> None:
    worker = Worker(url(), drain_s=3600)
    began, gate = threading.Event(), threading.Event()

    @worker.handler("mail")
    def wait() -> None:
        began.set()
        gate.wait(150)

    assert worker.url is not None
    async with bucketq.connect(worker.url) as queue:
        await queue.push("mail", 0, max_attempts=1)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(began.wait, 20)
        worker.stop(hurry=True)
        await ends(running)
        (job,) = (await queue.jobs()).jobs
        assert (job.status, job.lost_leases) == ("queued", 0)
    gate.set()


async def test_a_worker_runs_once_at_a_time_and_again_afterwards() -> None:
    worker = Worker(url())
    worker.handler("mail")(lambda: None)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.05)
    with pytest.raises(InvalidRequestError, match="already running"):
        await worker.run()
    worker.stop()
    await ends(running)
    await worker.run(burst=True)


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [(["fax"], "no handler for kind 'fax'; it has handlers for mail"), ([], "kinds is empty")],
)
async def test_kinds_without_handlers_are_refused(kinds: list[str], reason: str) -> None:
    worker = Worker(url())
    worker.handler("mail")(lambda: None)
    with pytest.raises(InvalidRequestError, match=reason):
        await worker.run(kinds=kinds)


async def test_a_worker_without_handlers_or_without_a_queue_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BUCKETQ_URL", raising=False)
    worker = Worker()
    with pytest.raises(InvalidRequestError, match="has no handlers"):
        await worker.run()
    worker.handler("mail")(lambda: None)
    with pytest.raises(InvalidRequestError, match="set BUCKETQ_URL"):
        await worker.run()
    assert not bucketq_threads()


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"drain_s": -1}, {"concurrency": 10**6}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        Worker("memory://x", **options)


def test_a_handler_without_a_kind_is_rejected_when_it_is_registered() -> None:
    worker = bucketq.Worker()
    with pytest.raises(InvalidRequestError, match=r'write @worker.handler\("kind"\)'):
        worker.handler(print)  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("burst", [False, True])
async def test_a_stop_while_the_queue_is_being_closed_interrupts_nothing(
    monkeypatch: pytest.MonkeyPatch, *, burst: bool
) -> None:
    worker = Worker(url())
    worker.handler("mail")(lambda: None)
    closing, may_close, closed = threading.Event(), threading.Event(), threading.Event()
    close = UnopenedQueue.__aexit__

    async def close_slowly(self: UnopenedQueue[Any], *args: object) -> None:
        closing.set()
        await asyncio.to_thread(may_close.wait, 20)
        await close(self, *args)
        closed.set()

    monkeypatch.setattr(UnopenedQueue, "__aexit__", close_slowly)
    running = asyncio.create_task(worker.run(burst=burst))
    while not worker.is_ready:  # noqa: ASYNC110 - polled on purpose
        await asyncio.sleep(0.01)
    if not burst:
        worker.stop()
    await asyncio.to_thread(closing.wait, 20)
    for _ in range(3):
        worker.stop()
    await asyncio.sleep(0.05)
    assert not running.done()
    may_close.set()
    await ends(running)
    assert closed.is_set()

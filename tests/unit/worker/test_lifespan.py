"""What runs before, after and around the handlers of a worker."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import Context, Worker
from bucketq.errors import InvalidRequestError
from bucketq.testing import Workbench
from tests.unit.worker import process_handlers

_numbers = itertools.count()


def new_worker() -> Worker:
    return Worker(f"memory://lifespan-{next(_numbers)}")


async def run_jobs(worker: Worker, **payloads: Any) -> dict[str, Any]:
    """Push jobs by kind, run them, and return their results, or their errors."""
    assert worker.url is not None
    async with bucketq.connect(worker.url) as queue:
        ids = {kind: await queue.push(kind, value) for kind, value in payloads.items()}
        await worker.run(burst=True)
        jobs = {kind: await queue.get(job_id) for kind, job_id in ids.items()}
    return {kind: job.errors[-1].error if job.errors else job.result for kind, job in jobs.items()}


async def test_handlers_take_what_was_opened_at_the_start_and_is_closed_at_the_end() -> None:
    worker, events = new_worker(), list[str]()
    here = asyncio.get_running_loop()

    @worker.on_start
    async def open_pool(state: dict[str, Any]) -> None:
        assert asyncio.get_running_loop() is here
        state["pool"] = "a pool"
        events.append("pool opened")

    @worker.on_start
    def give_name(state: dict[str, Any]) -> None:
        assert state["pool"] == "a pool"
        state["name"] = "ada"
        events.append("named")

    @worker.on_stop
    async def close_pool(state: dict[str, Any]) -> None:
        assert asyncio.get_running_loop() is here
        events.append(f"{state['pool']} closed")

    @worker.on_stop
    def say_so() -> None:
        events.append("over")

    @worker.handler("async")
    async def on_loop(number: int, pool: str = worker.state("pool")) -> str:
        return f"{number} on {pool}"

    @worker.handler("plain")
    def in_thread(pool: str = worker.state("pool"), name: str = worker.state("name")) -> str:
        events.append(f"ran as {name}")
        return pool

    assert await run_jobs(worker, **{"async": 7, "plain": None}) == {
        "async": "7 on a pool",
        "plain": "a pool",
    }
    assert events == ["pool opened", "named", "ran as ada", "over", "a pool closed"]
    assert await on_loop(1, "another") == "1 on another", "it is called as usual elsewhere"


async def test_a_start_that_fails_ends_the_worker_before_it_claims() -> None:
    worker, stopped = new_worker(), list[str]()

    @worker.on_start
    def fail() -> None:
        message = "no database"
        raise OSError(message)

    worker.on_stop(lambda: stopped.append("stopped"))
    worker.handler("mail")(lambda: "sent")
    assert worker.url is not None
    async with bucketq.connect(worker.url) as queue:
        job_id = await queue.push("mail", 0)
        with pytest.raises(OSError, match="no database"):
            await worker.run(burst=True)
        assert (await queue.get(job_id)).attempt == 0
    assert not stopped


async def test_what_no_function_has_set_is_missed_before_a_job_is_claimed() -> None:
    worker, stopped = new_worker(), list[str]()

    @worker.handler("mail")
    def send(pool: str = worker.state("pool")) -> str:
        return pool

    worker.on_stop(lambda: stopped.append("stopped"))
    with pytest.raises(InvalidRequestError, match=r"takes worker.state\('pool'\), but state"):
        await worker.run(burst=True)


async def test_all_functions_are_called_at_the_end_even_if_some_fail() -> None:
    worker, events = new_worker(), list[str]()

    def fail(text: str) -> None:
        events.append(text)
        raise ValueError(text)

    worker.on_stop(lambda: fail("first"))
    worker.on_stop(lambda: fail("second"))
    worker.handler("mail")(lambda: None)
    with pytest.raises(ExceptionGroup) as caught:
        await worker.run(burst=True)
    assert events == ["second", "first"]
    assert [str(each) for each in caught.value.exceptions] == events
    worker.lifespan.on_stop.pop()
    with pytest.raises(ValueError, match="first"):
        await worker.run(burst=True)


async def test_a_worker_that_is_stopped_while_it_starts_ends() -> None:
    worker, inside, cancelled = new_worker(), asyncio.Event(), asyncio.Event()

    @worker.on_start
    async def never_ready() -> None:
        inside.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    worker.handler("mail")(lambda: None)
    running = asyncio.create_task(worker.run())
    await inside.wait()
    worker.stop()
    await asyncio.wait_for(running, 60)
    await asyncio.wait_for(cancelled.wait(), 60)


async def test_what_was_opened_is_closed_if_the_worker_is_cancelled() -> None:
    worker, inside, events = new_worker(), asyncio.Event(), list[str]()
    worker.on_stop(lambda: events.append("closed"))

    @worker.handler("mail")
    async def wait() -> None:
        inside.set()
        await asyncio.sleep(600)

    assert worker.url is not None
    async with bucketq.connect(worker.url) as queue:
        await queue.push("mail", 0)
        running = asyncio.create_task(worker.run())
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 60)
    assert events == ["closed"]


async def test_middleware_runs_around_handlers_the_first_outermost() -> None:
    worker, events = new_worker(), list[str]()

    @worker.middleware
    def outer(context: Context) -> Iterator[None]:
        events.append(f"outer {context.job.kind} {threading.current_thread().name.split()[0]}")
        yield
        events.append("outer ends")

    @worker.middleware
    def inner(context: Context) -> Iterator[None]:
        events.append(f"inner {context.attempt}")
        yield
        events.append("inner ends")

    @worker.handler("plain")
    def plain() -> str:
        events.append("runs")
        return "result"

    assert await run_jobs(worker, plain=0) == {"plain": "result"}
    assert events == ["outer plain bucketq", "inner 1", "runs", "inner ends", "outer ends"]


async def test_middleware_sees_what_a_handler_raises_and_may_change_it() -> None:
    worker, seen = new_worker(), list[str]()

    @worker.middleware
    async def report(context: Context) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        try:
            yield
        except KeyError:
            seen.append("suppressed")
        except Exception as error:
            seen.append(f"{type(error).__name__} of {context.job.kind}")
            raise

    @worker.handler("key", max_attempts=1)
    async def key() -> None:
        raise KeyError

    @worker.handler("value", max_attempts=1)
    async def value() -> None:
        message = "wrong"
        raise ValueError(message)

    @worker.handler("typed", max_attempts=1)
    async def typed(number: int) -> int:
        return number

    results = await run_jobs(worker, key=0, value=0, typed="no number")
    assert results["key"] is None
    assert "ValueError: wrong" in results["value"]
    assert "the payload" in results["typed"]
    assert sorted(seen) == ["UnfitPayload of typed", "ValueError of value", "suppressed"]


async def test_middleware_is_around_handlers_in_processes(tmp_path: Path) -> None:
    worker = new_worker()
    worker.middleware(process_handlers.note_process)
    worker.handler("who", run_in="process")(process_handlers.who)
    noted = tmp_path / "pid"
    assert await run_jobs(worker, who=str(noted)) == {"who": int(noted.read_text())}


async def test_async_middleware_around_a_plain_handler_is_refused() -> None:
    worker = new_worker()

    @worker.middleware
    async def traced(_: Context) -> AsyncIterator[None]:
        yield

    worker.handler("mail")(process_handlers.who)
    with pytest.raises(
        InvalidRequestError, match="traced is async, but the handler of kind 'mail'"
    ):
        await worker.run(burst=True)


async def test_middleware_that_a_process_cannot_import_is_refused() -> None:
    worker = new_worker()

    @worker.middleware
    def local(_: Context) -> Iterator[None]:
        yield

    worker.handler("who", run_in="process")(process_handlers.who)
    with pytest.raises(InvalidRequestError, match=r"imports the middleware as .*at module level"):
        await worker.run(burst=True)


def test_a_function_without_yield_is_no_middleware() -> None:
    with pytest.raises(InvalidRequestError, match="generator function"):
        new_worker().middleware(lambda _: iter(()))


def test_a_handler_in_a_process_cannot_take_state() -> None:
    worker = new_worker()

    def send(pool: str = worker.state("pool")) -> None: ...

    send.__qualname__ = "send"
    with pytest.raises(InvalidRequestError, match="runs in a process, which has no state"):
        worker.handler("mail", run_in="process")(send)


def test_a_workbench_starts_and_stops_its_workers_in_each_run() -> None:
    worker, events = new_worker(), list[str]()

    @worker.on_start
    async def open_pool(state: dict[str, Any]) -> None:
        state["pool"] = "real"
        events.append("opened")

    worker.on_stop(lambda: events.append("closed"))

    @worker.middleware
    def noted(_: Context) -> Iterator[None]:
        events.append("around")
        yield

    @worker.handler("mail")
    def send(pool: str = worker.state("pool")) -> str:
        return pool

    with Workbench(worker) as bench:
        bench.queue.push("mail", 0)
        [ran] = bench.run()
        assert ran.job.result == "real"
        assert events == ["opened", "around", "closed"]
    with Workbench(worker, state={"pool": "of the test"}) as bench:
        bench.queue.push("mail", 0)
        [ran] = bench.run()
        assert ran.job.result == "of the test"
        assert events == ["opened", "around", "closed", "around"]
    with Workbench(worker, state={}) as bench, pytest.raises(InvalidRequestError, match="pool"):
        bench.run()

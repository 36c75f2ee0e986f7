"""A worker's engine on virtual time, over a queue that fails as a test plans."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

from bucketq.errors import UnavailableError
from bucketq.model.records import JobRecord
from bucketq.queue import payload as payloads
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from bucketq.worker.engine import Engine
from bucketq.worker.handlers import Handler, bind
from bucketq.worker.runners.runner import Runner, TaskRunner
from tests.unit.commit.worlds import Effect, Fault, World

VERBS = (
    *("claim", "heartbeat", "complete", "complete_many", "fail", "release", "release_many"),
    *("snooze", "settings", "stats", "jobs", "announce"),
)


class FaultyQueue:
    """A real queue behind planned faults; it records every call.

    Each planned fault hits one call, in order; the standing one hits every other call.
    """

    def __init__(self, queue: Queue[Any]) -> None:
        self._queue = queue
        self.calls: list[tuple[str, float]] = []
        """The verb of each call, and when it was made."""
        self.requests: dict[str, list[str | None]] = {}
        """For each verb, under which request each call was made."""
        self._planned: dict[str, deque[Fault]] = {}
        self._standing: dict[str, Fault] = {}

    def plan(self, verb: str, *faults: Fault) -> None:
        self._planned.setdefault(verb, deque()).extend(faults)

    def stand(self, verb: str, fault: Fault | None) -> None:
        if fault is None:
            self._standing.pop(verb, None)
        else:
            self._standing[verb] = fault

    def cut(self) -> None:
        """Let nothing through any more."""
        for verb in VERBS:
            self.stand(verb, unheard)

    def mend(self) -> None:
        self._standing.clear()

    def times(self, verb: str) -> list[float]:
        return [at_s for called, at_s in self.calls if called == verb]

    def count(self, verb: str) -> int:
        return len(self.times(verb))

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        if verb not in VERBS:
            raise AttributeError(verb)

        async def call(*args: Any, **options: Any) -> Any:
            self.calls.append((verb, asyncio.get_running_loop().time()))
            self.requests.setdefault(verb, []).append(options.get("request"))
            planned = self._planned.get(verb)
            fault = planned.popleft() if planned else self._standing.get(verb)

            async def effect() -> Any:
                return await getattr(self._queue, verb)(*args, **options)

            return await (effect() if fault is None else fault(effect))

        return call


async def unheard(_: Effect) -> None:
    """Never reach the queue, and raise after a while."""
    await asyncio.sleep(1.0)
    raise UnavailableError("the connection was reset", request=None)


def failing(error: Exception) -> Fault:
    """Answer with an error, and do nothing."""

    async def fault(_: Effect) -> None:
        raise error

    return fault


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[tuple[Queue[Any], FaultyQueue]]:
    """A queue, and the same queue behind planned faults, for a worker."""
    async with World().embedded(**options) as queue:
        yield queue, FaultyQueue(queue)


def engine_of(
    faulty: FaultyQueue,
    *handlers: Handler,
    concurrency: int = 2,
    runner: Runner | None = None,
    **options: Any,
) -> Engine:
    return Engine(
        cast("Queue[Any]", faulty),
        {handler.kind: handler for handler in handlers},
        runner or TaskRunner(),
        SimulatedClock(current_loop()),
        name="w",
        concurrency=concurrency,
        **options,
    )


@asynccontextmanager
async def working(faulty: FaultyQueue, *handlers: Handler, **options: Any) -> AsyncIterator[Engine]:
    """Run an engine until the block ends, and then stop it with hurry."""
    engine = engine_of(faulty, *handlers, **options)
    running = asyncio.create_task(engine.run())
    await asyncio.sleep(0)
    try:
        yield engine
    finally:
        engine.stop(hurry=True)
        await running
    check_empty(engine)


async def burst(faulty: FaultyQueue, *handlers: Handler, **options: Any) -> Engine:
    """Work until no job is available."""
    engine = engine_of(faulty, *handlers, burst=True, **options)
    await engine.run()
    check_empty(engine)
    return engine


def check_empty(engine: Engine) -> None:
    """Check that the engine holds nothing of any job."""
    assert not engine._attempts
    assert not engine._tasks
    assert not engine._backlog
    assert not engine._keeper._kept
    assert engine._settling.is_empty


def handler(kind: str = "mail", **options: Any) -> Callable[[Callable[..., Any]], Handler]:
    """Bind a function to a kind of job."""
    return lambda function: bind(kind, function, **options)


class Recorder:
    """A handler that records its runs, and waits until the test lets it continue."""

    def __init__(self) -> None:
        self.began: list[Any] = []
        self.ended: list[Any] = []
        self.cancelled: list[Any] = []
        self.inside = 0
        self.most = 0
        self.gate = asyncio.Event()
        self.takes_s = 0.0

    async def __call__(self, payload: Any) -> str:
        self.began.append(payload)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await asyncio.sleep(self.takes_s)
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(payload)
            raise
        finally:
            self.inside -= 1
        self.ended.append(payload)
        return f"did {payload}"

    def bind(self, kind: str = "mail", **options: Any) -> Handler:
        async def work(payload: Any) -> str:
            return await self(payload)

        return bind(kind, work, **options)


async def until(is_so: Callable[[], bool], patience_s: float = 120.0) -> None:
    """Let virtual time pass until a condition holds."""
    loop = asyncio.get_running_loop()
    late_s = loop.time() + patience_s
    while not is_so():
        assert loop.time() < late_s, "it took too long"
        await asyncio.sleep(0.01)


def claimed_job(payload: Any = None, **fields: Any) -> Job[Any]:
    """A job as a claim returns it, for tests that need no queue."""
    raw, encoding = payloads.encode(payload, "payload")
    record: dict[str, Any] = {
        "id": "job-1",
        "kind": "mail",
        "seq": 1,
        "status": "running",
        "attempt": 1,
        "lease": "lease-1",
        "payload": raw,
        "payload_encoding": encoding,
        "pushed_at": datetime(2026, 1, 1, tzinfo=UTC),
    } | fields
    return Job(JobRecord(**record), Any)


async def only(queue: Queue[Any]) -> Job[Any]:
    """The one job of a queue."""
    (job,) = (await queue.jobs()).jobs
    return job


@handler()
async def nothing() -> None:
    """Be done at once."""

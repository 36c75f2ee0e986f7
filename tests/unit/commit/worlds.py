"""A store that fails as a test tells it to, and queues over it, on virtual time."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

from bucketq.admin import QueueObject, backup
from bucketq.codec.decode import decode
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.model.state import State
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectInfo, PreconditionFailedError, StoredObject
from bucketq.store.memory import MemoryStore
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop, run

P = ParamSpec("P")

KEY = "queue.json"

Effect = Callable[[], Awaitable[Any]]
Fault = Callable[[Effect], Awaitable[Any]]


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on virtual time, where an hour of waiting takes no time at all."""

    @functools.wraps(test)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        run(lambda _: test(*args, **kwargs))

    return call


def start(call: Awaitable[Any]) -> asyncio.Task[Any]:
    """Begin a call, to be waited for later."""

    async def wait() -> Any:
        return await call

    return asyncio.create_task(wait())


async def settle() -> None:
    """Let everything run that can run without time passing."""
    await asyncio.sleep(0.001)


class ScriptedStore:
    """A store that does what it should, but for the faults that were planned.

    A fault is a function that is given the call and does with it what it likes. Those that were
    planned strike one call each, in order; the standing one strikes every other.
    """

    def __init__(self, clock: SimulatedClock, write_interval_s: float) -> None:
        self.memory = MemoryStore("scripted", clock)
        self.url = "test://scripted"
        self.write_interval_s = write_interval_s
        self.calls: list[str] = []
        self.bodies: list[bytes] = []
        """What was sent to be written, each time."""
        self.written_at: list[float] = []
        self._planned: dict[str, deque[Fault]] = {}
        self._standing: dict[str, Fault] = {}

    def plan(self, verb: str, *faults: Fault) -> None:
        self._planned.setdefault(verb, deque()).extend(faults)

    def stand(self, verb: str, fault: Fault | None) -> None:
        if fault is None:
            self._standing.pop(verb, None)
        else:
            self._standing[verb] = fault

    def break_down(self, fault: Fault | None) -> None:
        """Let everything fail alike, or nothing any more."""
        for verb in ("get", "get_if_changed", "create", "replace"):
            self.stand(verb, fault)

    def count(self, verb: str) -> int:
        return self.calls.count(verb)

    async def get(self, key: str) -> StoredObject:
        found: StoredObject = await self._call("get", lambda: self.memory.get(key))
        return found

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        found: StoredObject | None = await self._call(
            "get_if_changed", lambda: self.memory.get_if_changed(key, etag)
        )
        return found

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        part: bytes = await self._call(
            "get_range", lambda: self.memory.get_range(key, offset, length)
        )
        return part

    async def create(self, key: str, body: bytes) -> str:
        etag: str = await self._call("create", lambda: self.memory.create(key, body))
        return etag

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        self.bodies.append(body)
        self.written_at.append(asyncio.get_running_loop().time())
        new: str = await self._call("replace", lambda: self.memory.replace(key, body, etag))
        return new

    async def put(self, key: str, body: bytes) -> str:
        return await self.memory.put(key, body)

    async def delete(self, key: str) -> None:
        await self.memory.delete(key)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self.memory.list(prefix)

    async def close(self) -> None:
        await self.memory.close()

    async def _call(self, verb: str, effect: Effect) -> Any:
        self.calls.append(verb)
        planned = self._planned.get(verb)
        fault = planned.popleft() if planned else self._standing.get(verb)
        # Even a fast store answers in another turn of the loop.
        await asyncio.sleep(0)
        return await (effect() if fault is None else fault(effect))


def queue_over(
    kind: type[DirectCommitter | GroupCommitter],
    register: Register,
    clock: SimulatedClock,
    *,
    timeout_s: float = 60.0,
    worker: str = "worker",
    payload_type: Any = Any,
    **options: Any,
) -> Queue[Any]:
    """A queue that commits in one way or the other; the other options are the committer's."""
    committer = kind(register, clock, timeout_s=timeout_s, **options)
    return Queue(committer, clock, worker=worker, payload_type=payload_type, timeout_s=timeout_s)


def group_of(queue: Queue[Any]) -> GroupCommitter:
    """The group committer of a queue."""
    committer = queue._committer
    assert isinstance(committer, GroupCommitter)
    return committer


class World:
    """A store, a clock, and the queues over them."""

    def __init__(self, write_interval_s: float = 0.0) -> None:
        self.clock = SimulatedClock(current_loop())
        self.store = ScriptedStore(self.clock, write_interval_s)

    def register(self) -> Register:
        return Register(self.store, KEY, "test://queue", self.clock)

    def direct(self, **options: Any) -> Queue[Any]:
        return queue_over(DirectCommitter, self.register(), self.clock, **options)

    def embedded(self, **options: Any) -> Queue[Any]:
        return queue_over(GroupCommitter, self.register(), self.clock, **options)

    def rival(self) -> Queue[Any]:
        """Another writer of the same object, with whose storage nothing is wrong."""
        register = Register(self.store.memory, KEY, "test://queue", self.clock)
        return queue_over(DirectCommitter, register, self.clock, worker="rival")

    async def rival_pushes(self, count: int = 1, kind: str = "rival") -> list[str]:
        async with self.rival() as rival:
            return [await rival.push(kind, number) for number in range(count)]

    async def body(self) -> bytes:
        return (await self.store.memory.get(KEY)).body

    async def state(self) -> State:
        """The state in the storage, with the rows that are in segments."""
        target = QueueObject(self.store.memory, KEY, "test://queue", self.clock)
        return decode((await backup(target)).body, "test://queue").state

    async def ids(self) -> list[str]:
        return [job.id for job in (await self.state()).jobs]


async def lose_request(_: Effect) -> None:
    raise UnavailableError("the connection was reset")


async def lose_answer(effect: Effect) -> None:
    await effect()
    raise UnavailableError("the connection was reset")


async def conflict_with_itself(effect: Effect) -> Any:
    await effect()
    return await effect()


async def conflict_for_no_reason(_: Effect) -> None:
    raise PreconditionFailedError("409")


async def refuse(_: Effect) -> None:
    raise StoreRefusedError("no space left")


async def throttle(_: Effect) -> None:
    raise UnavailableError("503 slow down", throttled=True)


async def say_nothing(_: Effect) -> None:
    await asyncio.Event().wait()


def slowly(seconds: float) -> Fault:
    """Take effect and answer after a while."""

    async def fault(effect: Effect) -> Any:
        await asyncio.sleep(seconds)
        return await effect()

    return fault


def late(seconds: float) -> Fault:
    """Say that it failed, and take effect after a while."""

    async def land(effect: Effect) -> None:
        await asyncio.sleep(seconds)
        try:
            await effect()
        except PreconditionFailedError:
            return

    async def fault(effect: Effect) -> None:
        fault.landing = asyncio.create_task(land(effect))  # type: ignore[attr-defined]
        raise UnavailableError("the connection was reset")

    return fault


def first(action: Callable[[], Awaitable[object]]) -> Fault:
    """Let something else happen before the call takes effect."""

    async def fault(effect: Effect) -> Any:
        await action()
        return await effect()

    return fault


def then_lost(action: Callable[[], Awaitable[object]]) -> Fault:
    """Take effect, let something else happen, and lose the answer."""

    async def fault(effect: Effect) -> None:
        await effect()
        await action()
        raise UnavailableError("the connection was reset")

    return fault


def lost_then(action: Callable[[], Awaitable[object]]) -> Fault:
    """Take no effect, let something else happen, and say nothing certain."""

    async def fault(_: Effect) -> None:
        await action()
        raise UnavailableError("the connection was reset")

    return fault


class Gate:
    """Holds a call back until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, effect: Effect) -> Any:
        self.reached.set()
        await self._open.wait()
        return await effect()

"""What callers do with a queue, as functions of its adapter, and how long it takes them.

``push``, ``claim_and_complete`` and ``cycle`` (both) are one turn of one caller. ``work_together``
lets many callers of a process take turns until the time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

from benchmarks.peers.adapter import Adapter, Payload, Usage

PAYLOAD_BYTES = 100
FILL_BATCH = 1000
SAMPLES_MAX = 1000
"""How many latencies a client reports: enough for a p99, and little to send."""
RECOVERY_PAUSE_S = 0.01
RECOVERY_S = 60.0


def now() -> float:
    """The running loop's time, which is virtual in tests."""
    return asyncio.get_running_loop().time()


Turn = Callable[["Caller"], Awaitable[int]]


@dataclass
class Work:
    """What a client measured."""

    jobs: int
    took_s: float
    latencies_s: list[float] = field(default_factory=list)
    """Of single calls, sorted; evenly chosen if there were many."""
    windows: list[int] = field(default_factory=list)
    """The jobs of each full window of time."""


class Caller:
    """One of the callers that share an adapter, and the times that its calls took."""

    def __init__(self, adapter: Adapter, per_call: int, name: str) -> None:
        self.adapter = adapter
        self.per_call = per_call
        self.latencies_s: list[float] = []
        self._name = name
        self._numbers = count()

    def payload(self) -> Payload:
        """Make a payload of a hundred bytes that no other job has."""
        text = f"{self._name}-{next(self._numbers)}"
        return {"text": text.ljust(PAYLOAD_BYTES - len('{"text": ""}'), "x")}


async def push(caller: Caller) -> int:
    """Push jobs in one call."""
    payloads = [caller.payload() for _ in range(caller.per_call)]
    begin = now()
    if caller.per_call == 1:
        await caller.adapter.push(payloads[0])
    else:
        await caller.adapter.push_many(payloads)
    caller.latencies_s.append(now() - begin)
    return len(payloads)


async def claim_and_complete(caller: Caller) -> int:
    """Claim and complete jobs, in two calls; return 0 if none was waiting."""
    begin = now()
    jobs = await caller.adapter.claim(caller.per_call)
    if not jobs:
        return 0
    between = now()
    await caller.adapter.complete(jobs)
    caller.latencies_s += (between - begin, now() - between)
    return len(jobs)


async def cycle(caller: Caller) -> int:
    """Push jobs, then claim and complete as many, so that the queue keeps its depth."""
    await push(caller)
    return await claim_and_complete(caller)


TURNS: dict[str, Turn] = {"push": push, "claim+complete": claim_and_complete, "cycle": cycle}


async def work_together(
    adapter: Adapter,
    turn: Turn,
    *,
    name: str,
    callers: int,
    per_call: int = 1,
    seconds: float = 60.0,
    jobs: int | None = None,
    window_s: float = 0.0,
) -> Work:
    """Let callers take turns until the time is over, the jobs are done, or no job is left."""
    everyone = [Caller(adapter, per_call, f"{name}-{number}") for number in range(callers)]
    begun, done, last = 0, 0, 0.0
    windows = [0] * int(seconds / window_s) if window_s else []
    begin = now()

    async def call(caller: Caller) -> None:
        nonlocal begun, done, last
        while now() - begin < seconds and (jobs is None or begun < jobs):
            begun += per_call
            got = await turn(caller)
            if not got and turn is claim_and_complete:
                return
            done += got
            last = now() - begin
            if windows and (window := int(last / window_s)) < len(windows):
                windows[window] += got

    await asyncio.gather(*map(call, everyone))
    latencies_s = sorted(each for caller in everyone for each in caller.latencies_s)
    step = max(1, len(latencies_s) // SAMPLES_MAX)
    return Work(done, last, latencies_s[step // 2 :: step], windows)


async def fill(adapter: Adapter, *, name: str, jobs: int, callers: int) -> Work:
    """Push jobs that wait, in batches if the peer takes any."""
    per_call = min(FILL_BATCH, jobs) if adapter.has_bulk else 1
    return await work_together(
        adapter, push, name=name, callers=min(callers, 4) if per_call > 1 else callers,
        per_call=per_call, seconds=600.0, jobs=jobs,
    )  # fmt: skip


async def recover(adapter: Adapter, *, name: str) -> Work:
    """Push until a push is acknowledged, after the server has failed."""
    caller, begin = Caller(adapter, 1, name), now()
    while True:
        try:
            await asyncio.wait_for(push(caller), RECOVERY_S)
        except Exception:
            # Each peer raises errors of its own for a connection that is lost or refused.
            if now() - begin > RECOVERY_S:
                raise
            await asyncio.sleep(RECOVERY_PAUSE_S)
        else:
            return Work(1, now() - begin)


async def count_usage(
    adapter: Adapter, *, name: str, jobs: int, callers: int, per_call: int
) -> Usage:
    """Cycle jobs, and return what that asked of the storage."""
    usage = adapter.usage
    assert usage is not None, "only a peer on object storage counts its requests"
    before = Usage(**vars(usage))
    await work_together(
        adapter, cycle, name=name, callers=callers, per_call=per_call, seconds=600.0, jobs=jobs
    )
    return Usage(**{key: value - getattr(before, key) for key, value in vars(usage).items()})

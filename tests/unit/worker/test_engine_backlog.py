"""Jobs that wait in a worker for a slot: they are released in time, and delay nothing else."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from bucketq.errors import UnavailableError
from tests.unit.commit.worlds import Effect, slowly, virtual
from tests.unit.worker.engine_harness import (
    Recorder,
    check_empty,
    claimed_job,
    engine_of,
    opened,
    until,
)
from tests.unit.worker.test_engine import mails

_ROUNDS_DOWN_S = 0.3
"""Two seconds later, less two seconds, is earlier than this."""


@virtual
async def test_a_job_is_released_when_its_time_is_up_however_that_is_rounded() -> None:
    async with opened() as (_, faulty):
        engine = engine_of(faulty, Recorder().bind(), concurrency=1)
        engine._busy = 1
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.call_at(_ROUNDS_DOWN_S, over.set)
        await over.wait()
        assert loop.time() == _ROUNDS_DOWN_S
        engine._take(claimed_job(), loop.time(), loop.time())
        engine._fill()
        await until(lambda: not engine._backlog, patience_s=2.1)
        assert faulty.count("release_many") == 1


@virtual
async def test_releasing_a_long_backlog_does_not_delay_heartbeats() -> None:
    """It is one request, which takes long if storage is slow."""
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.configure(lease_s=10.0, heartbeat_s=2.0)
        await queue.push_many(mails(200))
        engine = engine_of(faulty, recorder.bind(), concurrency=1)
        engine._prefetch.note_claim(1.0)
        engine._prefetch.note_run(0.001)
        faulty.stand("release_many", slowly(20))
        running = asyncio.create_task(engine.run())
        await until(lambda: engine.counters.waiting > 100)
        engine.stop()
        await until(lambda: engine.counters.count("released") == 199)
        times = [*faulty.times("heartbeat"), asyncio.get_running_loop().time()]
        assert times[-1] > 19
        assert faulty.count("release_many") == 1
        assert all(later - earlier < 5 for earlier, later in pairwise(times))
        recorder.gate.set()
        await running
        check_empty(engine)
        assert (await queue.stats()).counts["mail"] == {"done": 1, "queued": 199}


@virtual
async def test_a_request_that_is_older_than_the_queues_memory_is_sent_anew() -> None:
    recorder = Recorder()
    recorder.gate.set()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(1))

        async def in_doubt(_: Effect) -> Any:
            raise UnavailableError("no answer", request="claim.01KDVDM4PJC33NJZQWE03QY0A1.1.1")

        async def forgotten(_: Effect) -> Any:
            raise UnavailableError("it is older than what the queue remembers")

        faulty.plan("claim", in_doubt, forgotten)
        engine = engine_of(faulty, recorder.bind())
        running = asyncio.create_task(engine.run())
        await until(lambda: len(recorder.ended) == 1)
        engine.stop()
        await running
        first, again, anew, *_ = faulty.requests["claim"]
        assert (first, anew) == (None, None)
        assert again is not None

"""How a worker ends: handlers finish, other jobs are released, and a hurry stops the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.errors import UnavailableError
from bucketq.queue.queue import Queue
from bucketq.worker.context import Context
from bucketq.worker.engine import Engine
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.runner import Begun, Runner, call
from tests.unit.commit.worlds import say_nothing, virtual
from tests.unit.worker.engine_harness import (
    VERBS,
    FaultyQueue,
    Recorder,
    check_empty,
    engine_of,
    handler,
    opened,
    until,
)
from tests.unit.worker.test_engine import mails


class Obstinate(Runner):
    """Runs handlers as a thread does: they cannot be stopped."""

    def __init__(self) -> None:
        self.running = 0

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        begun()
        self.running += 1
        work = asyncio.ensure_future(call(handler, context))
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                continue
        self.running -= 1
        return work.result()

    async def close(self) -> None:
        """Nothing is kept."""


async def counts(queue: Queue[Any]) -> dict[str, int]:
    return (await queue.stats()).counts["mail"]


async def begin(
    faulty: FaultyQueue, recorder: Recorder, inside: int, **options: Any
) -> tuple[Engine, asyncio.Task[None]]:
    engine = engine_of(faulty, recorder.bind(), **options)
    running = asyncio.create_task(engine.run())
    await until(lambda: recorder.inside == inside)
    return engine, running


@virtual
async def test_a_stopped_worker_claims_no_more_and_lets_its_handlers_finish() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(5))
        engine, running = await begin(faulty, recorder, 2)
        engine.stop()
        await asyncio.sleep(20)
        assert not running.done()
        assert not recorder.cancelled
        recorder.gate.set()
        await running
        check_empty(engine)
        assert await counts(queue) == {"done": 2, "queued": 3}
        assert len(recorder.began) == 2


@virtual
async def test_leases_are_renewed_while_a_worker_drains() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(1))
        engine, running = await begin(faulty, recorder, 1, drain_s=300)
        engine.stop()
        for _ in range(20):
            await asyncio.sleep(10)
            assert await queue.claim() == []
        recorder.gate.set()
        await running
        assert (await counts(queue)) == {"done": 1}


@virtual
async def test_a_worker_that_waits_for_jobs_stops_at_once() -> None:
    async with opened() as (_, faulty):
        engine = engine_of(faulty, Recorder().bind())
        running = asyncio.create_task(engine.run())
        await asyncio.sleep(3)
        began_s = asyncio.get_running_loop().time()
        engine.stop()
        await running
        assert asyncio.get_running_loop().time() - began_s < 0.1


@virtual
async def test_handlers_that_take_longer_than_the_drain_are_stopped() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(2))
        engine, running = await begin(faulty, recorder, 2, drain_s=7)
        began_s = asyncio.get_running_loop().time()
        engine.stop()
        await running
        # Before the drain is over, so that their jobs are released by then.
        assert 4 <= asyncio.get_running_loop().time() - began_s < 7
        assert sorted(recorder.cancelled) == [0, 1]
        check_empty(engine)
        assert await counts(queue) == {"queued": 2}
        assert engine.counters.count("released") == 2


@virtual
async def test_jobs_that_are_released_have_lost_none_of_their_attempts() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(2, max_attempts=1))
        engine, running = await begin(faulty, recorder, 2)
        engine.stop(hurry=True)
        await running
        for job in (await queue.jobs()).jobs:
            assert (job.status, job.failures, job.lost_leases) == ("queued", 0, 0)
            assert not job.errors


@virtual
async def test_a_second_stop_hurries() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(4))
        engine, running = await begin(faulty, recorder, 2, drain_s=1000)
        engine.stop()
        await asyncio.sleep(5)
        assert not running.done()
        began_s = asyncio.get_running_loop().time()
        engine.stop(hurry=True)
        await running
        assert asyncio.get_running_loop().time() - began_s < 1
        check_empty(engine)
        assert await counts(queue) == {"queued": 4}


@virtual
async def test_a_handler_that_does_not_stop_does_not_keep_its_job_from_others() -> None:
    recorder, runner = Recorder(), Obstinate()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(1))
        engine, running = await begin(faulty, recorder, 1, runner=runner)
        began_s = asyncio.get_running_loop().time()
        engine.stop(hurry=True)
        await running
        assert asyncio.get_running_loop().time() - began_s < 3
        assert await counts(queue) == {"queued": 1}
        assert runner.running == 1
        recorder.gate.set()


@virtual
async def test_a_handler_that_does_not_stop_keeps_its_slot() -> None:
    recorder, runner = Recorder(), Obstinate()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(3))
        engine, running = await begin(faulty, recorder, 2, runner=runner, concurrency=2)
        # Another worker has done both jobs.
        engine_jobs = [attempt.job for attempt in engine._attempts.values()]
        for job in engine_jobs:
            await queue.complete(job)
        await asyncio.sleep(30)
        assert recorder.inside == 2, "the third would have no slot of its own"
        assert engine.counters.count("lost") == 2
        recorder.gate.set()
        await until(lambda: len(recorder.ended) == 3)
        engine.stop()
        await running
        assert await counts(queue) == {"done": 3}
        assert engine._busy == 0


@virtual
async def test_a_hurried_stop_does_not_wait_for_a_queue_that_does_not_answer() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(2))
        engine, running = await begin(faulty, recorder, 2)
        for verb in VERBS:
            faulty.stand(verb, say_nothing)
        engine.stop(hurry=True)
        began_s = asyncio.get_running_loop().time()
        await running
        assert asyncio.get_running_loop().time() - began_s < 10
        check_empty(engine)


@virtual
async def test_completions_that_have_no_answer_are_not_left_behind_by_a_worker_that_ends() -> None:
    async with opened() as (queue, faulty):

        @handler()
        async def nothing() -> None:
            """Be done at once."""

        await queue.push_many(mails(2))
        faulty.stand("complete_many", say_nothing)
        before = asyncio.all_tasks()
        engine = engine_of(faulty, nothing)
        running = asyncio.create_task(engine.run())
        await until(lambda: faulty.count("complete_many") == 1)
        engine.stop(hurry=True)
        await running
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        check_empty(engine)


@virtual
async def test_a_worker_in_a_hurry_reports_its_outcomes_once_more() -> None:
    """The answer was lost; the queue is back when the worker is stopped with hurry."""
    async with opened() as (queue, faulty):

        @handler()
        async def nothing() -> None:
            """Be done at once."""

        async def lose(_: object) -> None:
            raise UnavailableError("no answer")

        await queue.push_many(mails(1))
        faulty.plan("complete_many", *[lose] * 8)
        engine = engine_of(faulty, nothing)
        running = asyncio.create_task(engine.run())
        await until(lambda: faulty.count("complete_many") == 8)
        engine.stop(hurry=True)
        await running
        assert await counts(queue) == {"done": 1}


@virtual
async def test_failing_to_read_the_settings_is_not_an_error_of_a_worker_that_ends() -> None:
    async with opened() as (_, faulty):
        engine = engine_of(faulty, Recorder().bind())
        running = asyncio.create_task(engine.run())
        await asyncio.sleep(1)
        faulty.cut()
        await asyncio.sleep(70)
        engine.stop(hurry=True)
        await running


@virtual
@pytest.mark.parametrize("hurry", [False, True])
async def test_what_waits_for_a_slot_is_released_at_once(*, hurry: bool) -> None:
    """Short handlers have let the worker fetch ahead; then one is long."""
    recorder = Recorder()
    recorder.gate.set()
    recorder.takes_s = 0.01
    async with opened() as (queue, faulty):

        async def slow(effect: Any) -> Any:
            await asyncio.sleep(0.2)
            return await effect()

        faulty.stand("claim", slow)
        await queue.push_many(mails(400))
        engine = engine_of(faulty, recorder.bind(), concurrency=2)
        running = asyncio.create_task(engine.run())
        await until(lambda: len(recorder.began) > 20)
        recorder.gate.clear()
        await until(lambda: recorder.inside == 2 and engine.counters.waiting > 10)
        engine.stop(hurry=hurry)
        await asyncio.sleep(0.5)
        assert not engine._backlog
        assert engine.counters.waiting == 0
        running_now = (await counts(queue)).get("running", 0)
        assert running_now == (0 if hurry else 2)
        recorder.gate.set()
        await running
        check_empty(engine)


@virtual
@pytest.mark.parametrize("drain_s", [0.1, 5.0, 30.0])
@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_a_worker_ends_within_its_drain_whatever_handlers_and_storage_do(
    *, drain_s: float, is_cut_off: bool
) -> None:
    recorder, runner = Recorder(), Obstinate()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(50))
        engine, running = await begin(
            faulty, recorder, 4, runner=runner, concurrency=4, drain_s=drain_s
        )
        if is_cut_off:
            for verb in VERBS:
                faulty.stand(verb, say_nothing)
        began_s = asyncio.get_running_loop().time()
        engine.stop()
        await running
        assert asyncio.get_running_loop().time() - began_s < max(drain_s, 5.0)
        check_empty(engine)
        if not is_cut_off:
            assert await counts(queue) == {"queued": 50}
        recorder.gate.set()


@virtual
async def test_handlers_have_most_of_the_drain_to_finish() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(2))
        engine, running = await begin(faulty, recorder, 2, drain_s=30)
        engine.stop()
        await asyncio.sleep(24)
        assert recorder.inside == 2
        assert not recorder.cancelled
        recorder.gate.set()
        await running
        assert await counts(queue) == {"done": 2}

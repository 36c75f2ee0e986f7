"""An attempt and the lease of its job: lost, expired, cancelled, and renewed until the end."""

from __future__ import annotations

import asyncio

import pytest

from bucketq import Context, InvalidRequestError, Progress
from tests.unit.commit.worlds import slowly, virtual
from tests.unit.worker.engine_harness import (
    Recorder,
    claimed_job,
    engine_of,
    handler,
    nothing,
    only,
    opened,
    working,
)
from tests.unit.worker.engine_harness import until as wait_until
from tests.unit.worker.test_engine_drain import Obstinate


@virtual
async def test_a_lost_lease_stops_the_handler_and_nothing_is_settled() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        job_id = await queue.push("mail", 0)
        async with working(faulty, recorder.bind(), concurrency=1) as engine:
            await wait_until(lambda: recorder.inside == 1)
            # Another worker has the job now.
            (attempt,) = engine._attempts.values()
            await queue.release(attempt.job)
            (job,) = await queue.claim(worker="other")
            await asyncio.sleep(6)
            assert recorder.cancelled == [0]
            assert engine.counters.count("lost") == 1
            for verb in ("release", "release_many", "fail", "complete", "complete_many"):
                assert not faulty.count(verb)
            await queue.complete(job, "by another")
        assert (await queue.get(job_id)).result == "by another"


@virtual
async def test_a_completion_after_the_lease_was_lost_changes_nothing() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        async with working(faulty, recorder.bind(), concurrency=1) as engine:
            await wait_until(lambda: recorder.inside == 1)
            (attempt,) = engine._attempts.values()
            await queue.release(attempt.job)
            (job,) = await queue.claim(worker="other")
            recorder.gate.set()
            await wait_until(lambda: engine.counters.count("lost") == 1)
            assert (await only(queue)).status == "running"
            await queue.complete(job, "by another")
        assert (await only(queue)).result == "by another"


@virtual
async def test_a_cancelled_job_is_stopped_and_ends_as_cancelled() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        job_id = await queue.push("mail", 0)
        async with working(faulty, recorder.bind()) as engine:
            await wait_until(lambda: recorder.inside == 1)
            assert await queue.cancel(job_id) == "requested"
            await asyncio.sleep(6)
            assert recorder.cancelled == [0]
            assert engine.counters.count("cancelled") == 1
        job = await only(queue)
        assert (job.status, job.outcome) == ("done", "cancelled")


@virtual
async def test_a_cancelled_job_is_running_until_its_handler_has_ended() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        job_id = await queue.push("mail", 0)
        async with working(faulty, recorder.bind(), runner=Obstinate()):
            await wait_until(lambda: recorder.inside == 1)
            await queue.cancel(job_id)
            await asyncio.sleep(300)
            assert (await only(queue)).status == "running"
            recorder.gate.set()
            await wait_until(lambda: recorder.inside == 0)
            await asyncio.sleep(1)
            assert (await only(queue)).status == "done"


@virtual
async def test_a_handler_is_stopped_when_its_lease_may_have_expired() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        async with working(faulty, recorder.bind()):
            await wait_until(lambda: recorder.inside == 1)
            began_s = asyncio.get_running_loop().time()
            faulty.cut()
            await wait_until(lambda: recorder.cancelled == [0])
            # Before 30 s, when the queue gives the job to another.
            assert 20 <= asyncio.get_running_loop().time() - began_s <= 29
            faulty.mend()
            await wait_until(lambda: faulty.count("release_many") > 0)
            await asyncio.sleep(10)


@virtual
async def test_heartbeats_are_sent_until_the_completion_is_acknowledged() -> None:
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        faulty.plan("complete_many", slowly(200))
        engine = engine_of(faulty, nothing, burst=True)
        running = asyncio.create_task(engine.run())
        await wait_until(lambda: faulty.count("complete_many") == 1)
        for _ in range(15):
            await asyncio.sleep(10)
            assert await queue.claim() == [], "it was taken from a healthy worker"
        await running
        assert engine.counters.count("done") == 1
        assert (await only(queue)).attempt == 1
        beats = faulty.times("heartbeat")
        assert len(beats) >= 38
        await asyncio.sleep(60)
        assert faulty.times("heartbeat") == beats


@virtual
async def test_what_a_handler_reports_comes_with_the_next_heartbeat() -> None:
    reported, ends = asyncio.Event(), asyncio.Event()

    @handler()
    async def send(payload: object, context: Context) -> None:
        await context.progress(1, 3)
        await context.progress(2, 3, "letters")
        reported.set()
        await ends.wait()

    async with opened() as (queue, faulty):
        job_id = await queue.push("mail", 0)
        async with working(faulty, send):
            await reported.wait()
            assert (await queue.get(job_id)).progress is None
            await asyncio.sleep(6)
            assert (await queue.get(job_id)).progress == Progress(2, 3, "letters")
            ends.set()
            await wait_until(lambda: faulty.count("complete") + faulty.count("complete_many") > 0)
        assert (await queue.get(job_id)).progress is None


def test_a_plain_handler_reports_without_await_and_nonsense_is_rejected() -> None:
    context = Context(claimed_job())
    context.progress(1, 2, "rows")
    assert context.reported == Progress(1, 2, "rows")
    with pytest.raises(InvalidRequestError):
        context.progress(float("inf"))
    assert context.reported == Progress(1, 2, "rows")

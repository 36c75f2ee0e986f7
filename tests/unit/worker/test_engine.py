"""The engine: slots, kinds, bursts, and claims whose answers are lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bucketq.errors import (
    AccessDeniedError,
    OverloadedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.operations import LeaseRef, Pulse
from bucketq.model.records import Backoff
from bucketq.model.settings import Settings
from bucketq.queue.job import Job
from bucketq.queue.push_options import JobSpec
from tests.unit.commit.worlds import Effect, Fault, World, slowly, virtual
from tests.unit.worker.engine_harness import (
    FaultyQueue,
    Recorder,
    burst,
    check_empty,
    claimed_job,
    engine_of,
    failing,
    handler,
    opened,
    until,
    working,
)


def after(pause: Fault) -> Fault:
    """Take effect at once, and answer after a while."""

    async def fault(effect: Effect) -> Any:
        answer = await effect()

        async def give() -> Any:
            return answer

        return await pause(give)

    return fault


def mails(count: int, kind: str = "mail", **fields: Any) -> list[JobSpec[Any]]:
    return [JobSpec(kind=kind, payload=number, **fields) for number in range(count)]


@handler()
async def nothing() -> None:
    """Be done at once."""


@virtual
async def test_jobs_are_done_in_order_with_the_results_of_their_handlers() -> None:
    done: list[int] = []

    @handler()
    async def double(payload: int) -> int:
        done.append(payload)
        return 2 * payload

    async with opened() as (queue, faulty):
        ids = await queue.push_many(mails(20))
        engine = await burst(faulty, double, concurrency=1)
        assert done == list(range(20))
        assert [(await queue.get(job)).result for job in ids] == [2 * number for number in done]
        assert engine.counters.claimed == engine.counters.count("done") == 20
        assert engine.counters.running == engine.counters.waiting == 0


@virtual
@pytest.mark.parametrize("concurrency", [1, 3, 8])
async def test_no_more_handlers_run_at_once_than_there_are_slots(concurrency: int) -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(30))
        async with working(faulty, recorder.bind(), concurrency=concurrency) as engine:
            await until(lambda: recorder.inside == concurrency)
            await asyncio.sleep(30)
            assert recorder.inside == concurrency == engine.counters.running
            recorder.gate.set()
            await until(lambda: len(recorder.ended) == 30)
    assert recorder.most == concurrency


@virtual
async def test_only_jobs_of_its_kinds_are_claimed() -> None:
    async with opened() as (queue, faulty):
        await queue.push_many([*mails(5), *mails(5, "fax")])
        await burst(faulty, nothing)
        stats = await queue.stats()
        assert stats.counts["mail"] == {"done": 5}
        assert stats.counts["fax"] == {"queued": 5}


@virtual
async def test_a_burst_waits_for_what_runs_and_does_what_that_pushes() -> None:
    async with opened() as (queue, faulty):

        @handler()
        async def follow(payload: int) -> None:
            await asyncio.sleep(1)
            if payload:
                await queue.push("mail", payload - 1)

        await queue.push("mail", 5)
        engine = await burst(faulty, follow)
        assert engine.counters.count("done") == 6
        assert not (await queue.stats()).counts["mail"].get("queued")


@virtual
async def test_a_burst_does_what_a_handler_pushes_and_waits_for() -> None:
    """Nothing else ends meanwhile, and the claims before found nothing."""
    async with opened() as (queue, faulty):

        @handler()
        async def follow(payload: int) -> None:
            await asyncio.sleep(1)
            if payload:
                job_id = await queue.push("mail", payload - 1)
                await queue.wait(job_id, timeout_s=10)

        await queue.push("mail", 5)
        engine = await burst(faulty, follow, concurrency=6)
        assert engine.counters.count("done") == 6
        assert engine.counters.count("retried") == 0


@virtual
async def test_a_burst_does_what_is_put_back_while_it_finds_nothing() -> None:
    """An empty claim is answered when the last job has just failed, and is there again."""
    async with opened() as (queue, faulty):

        @handler(backoff=Backoff(base_s=0, factor=1, max_s=0))
        async def fail() -> None:
            await asyncio.sleep(0.1)
            raise ValueError

        faulty.stand("claim", after(slowly(0.2)))
        await queue.push("mail", 0, max_attempts=7)
        engine = await burst(faulty, fail)
        assert (engine.counters.count("retried"), engine.counters.count("dead")) == (6, 1)


@virtual
async def test_a_burst_does_not_wait_for_jobs_that_are_not_due() -> None:
    async with opened() as (queue, faulty):
        await queue.push("mail", 0, delay_s=60)
        began_s = asyncio.get_running_loop().time()
        await burst(faulty, nothing)
        assert asyncio.get_running_loop().time() - began_s < 5


@virtual
async def test_a_job_that_is_pushed_while_the_worker_waits_is_done_at_once() -> None:
    async with opened() as (queue, faulty), working(faulty, nothing) as engine:
        await asyncio.sleep(50)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await queue.push("mail", 0)
        await until(lambda: engine.counters.count("done") == 1)
        assert loop.time() - began_s < 0.1


@virtual
async def test_a_claim_whose_answer_is_unknown_is_retried_and_strands_no_job() -> None:
    world = World()
    async with world.embedded(timeout_s=1.0) as queue:
        faulty = FaultyQueue(queue)
        await queue.push_many(mails(4))
        # It lands, but its answer is late.
        world.store.plan("replace", slowly(1.5))
        engine = await burst(faulty, nothing)
        assert engine.counters.count("done") == 4
        assert [job.attempt for job in (await queue.jobs()).jobs] == [1, 1, 1, 1]
        first, again = faulty.requests["claim"][:2]
        assert (first, again is None) == (None, False)


@virtual
async def test_a_claim_in_doubt_is_retried_once_when_the_worker_stops() -> None:
    world = World()
    async with world.embedded(timeout_s=1.0) as queue:
        faulty = FaultyQueue(queue)
        engine = engine_of(faulty, nothing)

        async def stop_when_in_doubt(effect: Effect) -> Any:
            try:
                return await effect()
            except UnavailableError:
                engine.stop()
                raise

        faulty.plan("claim", stop_when_in_doubt)
        running = asyncio.create_task(engine.run())
        await until(lambda: faulty.count("claim") == 1)
        world.store.stand("replace", slowly(25.0))
        await world.rival_pushes(2, "mail")
        await running
        check_empty(engine)
        world.store.stand("replace", None)
        await asyncio.sleep(30)
        stats = await queue.stats()
        assert stats.counts["mail"] == {"queued": 2}, "they would wait for their leases to run out"


@virtual
async def test_an_overloaded_queue_is_retried_after_the_time_that_it_names() -> None:
    async with opened() as (queue, faulty):
        await queue.push_many(mails(1))
        faulty.plan("claim", failing(OverloadedError("too much", retry_after_s=7)))
        await burst(faulty, nothing)
        first, again = faulty.times("claim")[:2]
        assert 3.5 <= again - first <= 10.5


@virtual
@pytest.mark.parametrize(
    "error",
    [AccessDeniedError("the token is invalid"), SupersededError("the queue was deleted")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("verb", ["claim", "settings"])
async def test_what_makes_the_queue_unusable_ends_the_worker_with_that_error(
    verb: str, error: Exception
) -> None:
    async with opened() as (_, faulty):
        faulty.plan(verb, failing(error))
        engine = engine_of(faulty, nothing)
        with pytest.raises(type(error), match=str(error)):
            await engine.run()
        check_empty(engine)


@virtual
@pytest.mark.parametrize("verb", ["claim", "settings", "heartbeat"])
async def test_a_queue_that_becomes_unusable_ends_the_worker_when_its_handlers_are_done(
    verb: str,
) -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(2))
        engine = engine_of(faulty, recorder.bind(), concurrency=3)
        running = asyncio.create_task(engine.run())
        await until(lambda: recorder.inside == 2)
        faulty.stand(verb, failing(SupersededError("the queue was deleted")))
        await asyncio.sleep(61)
        recorder.gate.set()
        with pytest.raises(SupersededError):
            await running
        check_empty(engine)


@virtual
async def test_a_worker_whose_lease_keeper_failed_claims_no_job() -> None:
    """Jobs that are claimed now would lose their leases."""
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        engine = engine_of(faulty, recorder.bind(), concurrency=3)
        running = asyncio.create_task(engine.run())
        await until(lambda: recorder.inside == 1)
        faulty.plan("heartbeat", failing(SupersededError("the queue was deleted")))
        await until(lambda: faulty.count("heartbeat") == 1)
        await asyncio.sleep(0.1)
        await queue.push_many(mails(2))
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(SupersededError):
            await running
        check_empty(engine)
        assert recorder.cancelled == [0], "its result would be lost"
        assert asyncio.get_running_loop().time() - began_s < 2
        assert (await queue.stats()).counts["mail"] == {"queued": 3}


@virtual
@pytest.mark.parametrize("kind", [None, "mail"])
async def test_a_pause_is_logged_once_and_waited_for(
    kind: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened() as (queue, faulty):
        await queue.pause(kind)
        await queue.pause("another-kind")
        await queue.push("mail", 1)
        async with working(faulty, nothing) as engine:
            await asyncio.sleep(600)
            what = kind or "the queue"
            assert caplog.messages == [
                f"{what} is paused; no jobs are claimed until `bucketq resume`"
            ]
            await queue.resume(kind)
            await until(lambda: engine.counters.count("done") == 1)


@virtual
async def test_kinds_without_a_handler_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as (queue, faulty):
        for kind in ("mial", "mial", "elsewhere", "paused", "mail", "known"):
            await queue.push(kind, 1)
        await queue.pause("paused")
        await queue.claim("elsewhere", lease_s=3600)
        await queue.push("elsewhere", 2)
        async with working(faulty, nothing, known=("known",)) as engine:
            await until(lambda: engine.counters.count("done") == 1)
            await asyncio.sleep(600)
            [line] = caplog.messages
            assert line.endswith("and none of their kind runs: mial (2)")
            await queue.push("later", 1)
            await asyncio.sleep(70)
            assert caplog.messages[1:] == [line.replace("mial (2)", "later (1)")]


@virtual
async def test_a_kind_without_a_handler_that_comes_right_after_the_start_is_named_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened() as (queue, faulty), working(faulty, nothing):
        await asyncio.sleep(1)
        await queue.push("mial", 1)
        await asyncio.sleep(4)
        assert "mial (1)" in caplog.text
        before = faulty.count("stats")
        await asyncio.sleep(600)
        assert faulty.count("stats") - before <= 11, "it looks no more often after that"


@virtual
async def test_a_line_names_ten_kinds_without_a_handler_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened() as (queue, faulty):
        for number in range(12):
            await queue.push(f"kind-{number:02}", 1)
        async with working(faulty, nothing):
            await until(lambda: bool(caplog.messages))
    [line] = caplog.messages
    assert "kind-09 (1)" in line
    assert "kind-10" not in line
    assert line.endswith(" and 2 more kinds")


@virtual
async def test_new_settings_are_applied_within_a_minute() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty), working(faulty, recorder.bind()):
        await queue.push("mail", 0)
        await until(lambda: recorder.inside == 1)
        await queue.configure(heartbeat_s=0.5)
        await asyncio.sleep(70)
        before = faulty.count("heartbeat")
        await asyncio.sleep(10)
        assert faulty.count("heartbeat") - before >= 18


@virtual
async def test_a_worker_that_cannot_read_the_settings_at_first_retries() -> None:
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        faulty.plan("settings", *[failing(UnavailableError("no answer"))] * 5)
        engine = await burst(faulty, nothing)
        assert engine.counters.count("done") == 1


class Endless:
    """A queue in memory that costs nothing: it hands out jobs and takes them back."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = 0

    async def settings(self) -> Settings:
        return Settings()

    async def stats(self) -> None:
        raise UnavailableError("no statistics here")

    async def jobs(self, **_: object) -> None:
        raise UnavailableError("no listing here")

    async def claim(self, _kinds: object, *, limit: int, **_: object) -> list[Job[Any]]:
        await asyncio.sleep(0.01)
        count = min(limit, self.left)
        self.left -= count
        return [claimed_job(id=f"job-{self.left + number}") for number in range(count)]

    async def heartbeat(self, leases: list[LeaseRef]) -> list[Pulse]:
        return [Pulse(lease.job, held=True) for lease in leases]

    async def complete_many(self, jobs: list[object], **_: object) -> list[bool]:
        await asyncio.sleep(0.01)
        self.done += len(jobs)
        return [True] * len(jobs)

    async def release_many(self, _jobs: list[object], **_: object) -> list[bool]:
        raise AssertionError("nothing is released in a burst that finishes every job")


# Whatever is left behind is counted, so a tenth of the jobs shows it as well as all of them.
@pytest.mark.parametrize("count", [5_000, pytest.param(50_000, marks=pytest.mark.full)])
@virtual
async def test_thousands_of_jobs_leave_nothing_behind(count: int) -> None:
    endless = Endless(count)
    engine = await burst(cast("FaultyQueue", endless), nothing, concurrency=50)
    assert engine.counters.count("done") == endless.done == count
    assert engine._busy == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual
async def test_more_handlers_run_at_once_when_the_engine_is_resized_and_fewer_later() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push_many(mails(12))
        async with working(faulty, recorder.bind(), concurrency=2) as engine:
            await until(lambda: recorder.inside == 2)
            engine.resize(5)
            await until(lambda: recorder.inside == 5)
            assert engine.concurrency == 5
            engine.resize(1)
            recorder.gate.set()
            await until(lambda: len(recorder.ended) == 12)
    assert recorder.most == 5

"""One attempt at a job: every way in which it can end, and what is reported to the queue."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from bucketq.errors import AccessDeniedError, StoreRefusedError
from bucketq.model.records import Backoff
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import GiveUp, Retry, Snooze
from tests.unit.commit.worlds import virtual
from tests.unit.worker.engine_harness import (
    Recorder,
    burst,
    engine_of,
    failing,
    handler,
    nothing,
    only,
    opened,
    working,
)
from tests.unit.worker.engine_harness import until as wait_until
from tests.unit.worker.test_engine_drain import Obstinate


@virtual
async def test_a_failed_job_is_tried_again_as_the_queue_says_until_it_is_dead() -> None:
    began: list[float] = []

    @handler()
    async def fail() -> None:
        began.append(asyncio.get_running_loop().time())
        raise ValueError("no such address")

    async with opened() as (queue, faulty):
        await queue.configure(max_attempts=3, backoff=Backoff(base_s=10, factor=2, max_s=1000))
        await queue.push("mail", 0)
        async with working(faulty, fail) as engine:
            await wait_until(lambda: engine.counters.count("dead") == 1)
        job = await only(queue)
        assert (job.status, job.failures, job.lost_leases) == ("dead", 3, 0)
        assert engine.counters.count("retried") == 2
        first, second, third = began
        assert 5 <= second - first <= 11
        assert 10 <= third - second <= 22
        for failure in job.errors:
            assert failure.error.startswith("ValueError: no such address\n")
            assert "in fail" in failure.error
            assert "bucketq/worker" not in failure.error


@virtual
async def test_the_backoff_of_a_handler_applies_unless_the_job_has_its_own() -> None:
    @handler(backoff=Backoff(base_s=100, factor=3, max_s=1000))
    async def fail() -> None:
        raise ValueError

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        await queue.push("mail", 1, backoff=Backoff(base_s=1, factor=1, max_s=1))
        began = (await queue.jobs()).jobs[0].pushed_at
        await burst(faulty, fail)
        slow, quick = (await queue.jobs()).jobs
        assert slow.run_at is not None
        assert quick.run_at is not None
        assert timedelta(seconds=50) <= slow.run_at - began <= timedelta(seconds=101)
        assert quick.run_at - began <= timedelta(seconds=2)
        await asyncio.sleep(101)
        again = (await queue.jobs()).jobs[0].run_at
        await burst(faulty, fail)
        later = (await queue.jobs()).jobs[0].run_at
        assert again is not None
        assert later is not None
        assert later - again >= timedelta(seconds=150), (
            "the second failure waits three times as long"
        )


@virtual
@pytest.mark.parametrize(("allowed", "own", "tried"), [(2, None, 2), (2, 4, 4), (3, 1, 1)])
async def test_the_attempts_of_a_handler_apply_unless_the_job_has_its_own(
    allowed: int, own: int | None, tried: int
) -> None:
    @handler(max_attempts=allowed, backoff=Backoff(base_s=0, factor=1, max_s=0))
    async def fail() -> None:
        raise ValueError

    async with opened() as (queue, faulty):
        await queue.push("mail", 0, max_attempts=own)
        await burst(faulty, fail)
        job = await only(queue)
        assert (job.status, job.failures) == ("dead", tried)


@virtual
async def test_lost_workers_count_against_the_attempts_that_a_handler_allows() -> None:
    """A job that takes its worker down with it is not handed to one worker after another."""
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        for _ in range(2):
            assert len(await queue.claim(wait_s=1000)) == 1
        async with working(faulty, recorder.bind(max_attempts=2)) as engine:
            await wait_until(lambda: engine.counters.count("dead") == 1, 1000)
        job = await only(queue)
        assert (job.status, job.lost_leases, job.failures) == ("dead", 2, 1)
        assert (
            "it failed or lost its worker 2 times, and 2 attempts are allowed"
            in job.errors[-1].error
        )
        assert not recorder.began
        assert engine._busy == 0


@virtual
async def test_a_retry_waits_for_its_delay_and_records_its_reason() -> None:
    @handler()
    async def retry(context: Context) -> str:
        if context.attempt == 1:
            raise Retry("the printer is busy", delay_s=timedelta(minutes=5))
        return "printed"

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        async with working(faulty, retry) as engine:
            await asyncio.sleep(290)
            assert engine.counters.count("retried") == 1
            assert (await only(queue)).errors[0].error == "the printer is busy"
            await asyncio.sleep(20)
            job = await only(queue)
            assert (job.status, job.result, job.failures) == ("done", "printed", 1)


@virtual
async def test_a_retry_meets_the_limit_of_attempts() -> None:
    @handler()
    async def retry() -> None:
        raise Retry

    async with opened() as (queue, faulty):
        await queue.push("mail", 0, max_attempts=4)
        engine = await burst(faulty, retry)
        assert ((await only(queue)).status, engine.counters.count("retried")) == ("dead", 3)


@virtual
async def test_a_snoozed_job_comes_back_later_and_has_used_up_no_attempt() -> None:
    times: list[float] = []

    @handler(max_attempts=1)
    async def snooze(context: Context) -> str:
        times.append(asyncio.get_running_loop().time())
        if context.attempt < 4:
            raise Snooze(60, "the report is not there yet")
        return "done"

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        for _ in range(4):
            engine = await burst(faulty, snooze)
            await asyncio.sleep(60)
        assert engine.counters.count("done") == 1
        job = await only(queue)
        assert (job.status, job.result, job.attempt) == ("done", "done", 4)
        assert (job.snoozes, job.failures, job.lost_leases, job.errors) == (3, 0, 0, ())
        assert all(later - earlier >= 60 for earlier, later in pairwise(times))


@virtual
async def test_a_job_cannot_be_snoozed_for_ever() -> None:
    @handler(max_attempts=2)
    async def snooze() -> None:
        raise Snooze(timedelta(0), "no report")

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        engine = await burst(faulty, snooze)
        job = await only(queue)
        assert (job.status, job.snoozes, job.failures, job.attempt) == ("dead", 100, 2, 102)
        reason = "it was put off 100 times, so putting it off again is a failure: no report"
        assert [failure.error for failure in job.errors] == [reason] * 2
        ends = {end: engine.counters.count(end) for end in ("snoozed", "retried", "dead")}
        assert ends == {"snoozed": 100, "retried": 1, "dead": 1}
        await queue.redrive()
        assert ((await only(queue)).snoozes, (await only(queue)).failures) == (0, 0)


@virtual
async def test_a_job_that_is_given_up_is_dead_at_once_with_the_reason() -> None:
    @handler()
    async def give_up() -> None:
        raise GiveUp("no such person")

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        await burst(faulty, give_up)
        job = await only(queue)
        assert (job.status, job.failures) == ("dead", 1)
        assert job.errors[0].error == "no such person"


@virtual
async def test_a_payload_that_does_not_fit_is_dead_at_once_with_the_reason() -> None:
    @handler()
    async def add(payload: int) -> int:
        return payload + 1

    async with opened() as (queue, faulty):
        await queue.push("mail", "one")
        engine = await burst(faulty, add)
        job = await only(queue)
        assert (job.status, job.failures, engine.counters.count("dead")) == ("dead", 1, 1)
        assert "cannot be decoded as int" in job.errors[0].error


@virtual
async def test_a_handler_that_takes_too_long_is_stopped_and_has_failed() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        engine = engine_of(faulty, recorder.bind(timeout_s=20, max_attempts=1), burst=True)
        began_s = asyncio.get_running_loop().time()
        await engine.run()
        assert 20 <= asyncio.get_running_loop().time() - began_s < 21
        job = await only(queue)
        assert recorder.cancelled == [0]
        assert (job.status, job.failures) == ("dead", 1)
        assert job.errors[0].error == "it took longer than 20 s, and was stopped"


@virtual
async def test_the_result_of_a_handler_that_ends_while_it_is_stopped_counts() -> None:
    @handler(timeout_s=5)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "just in time"
        return "never"

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        await burst(faulty, stubborn)
        job = await only(queue)
        assert (job.status, job.result, job.failures) == ("done", "just in time", 0)


@virtual
async def test_a_handler_that_does_not_stop_in_time_has_still_failed() -> None:
    recorder = Recorder()
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        bound = recorder.bind(timeout_s=5, backoff=Backoff(base_s=600, factor=1, max_s=600))
        async with working(faulty, bound, runner=Obstinate()) as engine:
            await asyncio.sleep(10)
            job = await only(queue)
            assert (job.status, job.failures) == ("queued", 1)
            assert engine.counters.running == 1, "it still has its slot"
            recorder.gate.set()
            await wait_until(lambda: engine.counters.running == 0)
            assert (await only(queue)).status == "queued"


@virtual
async def test_a_handler_that_cancels_itself_has_failed() -> None:
    @handler(max_attempts=1)
    async def give_up() -> None:
        raise asyncio.CancelledError

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        await burst(faulty, give_up)
        job = await only(queue)
        assert (job.status, job.errors[0].error) == ("dead", "the handler cancelled itself")


@virtual
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
async def test_a_handler_that_would_end_the_process_fails_its_job_alone(
    error: BaseException,
) -> None:
    @handler(max_attempts=1)
    async def leave(payload: int) -> None:
        if payload == 0:
            raise error

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        await queue.push("mail", 1)
        engine = await burst(faulty, leave, concurrency=1)
        assert (engine.counters.count("dead"), engine.counters.count("done")) == (1, 1)
        assert type(error).__name__ in (await queue.jobs()).jobs[0].errors[0].error


@virtual
async def test_an_error_whose_str_raises_fails_its_job_like_any_other() -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @handler(max_attempts=1)
    async def fail() -> None:
        raise SpeechlessError

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        engine = await burst(faulty, fail)
        assert engine.counters.count("dead") == 1
        assert (await only(queue)).errors[0].error.startswith("SpeechlessError")


@virtual
@pytest.mark.parametrize(
    ("result", "reason"),
    [(object(), "is unsupported"), (float("nan"), "NaN"), ("x" * 70_000, "max_result_bytes")],
    ids=["no-json", "nan", "too-large"],
)
async def test_a_result_that_cannot_be_kept_fails_its_job_as_any_error_does_and_no_other(
    result: object, reason: str
) -> None:
    @handler(max_attempts=2, backoff=Backoff(base_s=0, factor=1, max_s=0))
    async def give(payload: int) -> object:
        return result if payload == 1 else payload

    async with opened() as (queue, faulty):
        await queue.configure(max_result_bytes=65_536)
        for number in range(3):
            await queue.push("mail", number)
        engine = await burst(faulty, give, concurrency=3)
        first, spoiled, last = (await queue.jobs()).jobs
        assert (first.result, last.result) == (0, 2)
        assert (spoiled.status, spoiled.failures) == ("dead", 2)
        for failure in spoiled.errors:
            assert "the handler returned, but its result cannot be stored" in failure.error
            assert reason in failure.error
        assert (engine.counters.count("retried"), engine.counters.count("dead")) == (1, 1)


@virtual
@pytest.mark.parametrize(
    "error",
    [StoreRefusedError("no space left"), AccessDeniedError("the token was revoked")],
    ids=["store", "token"],
)
async def test_a_job_whose_completion_the_queue_rejects_for_now_is_not_dead(
    error: Exception,
) -> None:
    """Its handler has done its work, and the refusal is not about the result."""
    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        faulty.plan("complete_many", failing(error))
        faulty.plan("complete", failing(error))
        engine = await burst(faulty, nothing)
        job = await only(queue)
        assert (job.status, job.failures) == ("running", 0)
        assert engine.counters.count("unsettled") == 1


@virtual
async def test_results_of_every_kind_arrive_as_they_are() -> None:
    results: list[Any] = [None, 0, "", b"\x00\xff", {"a": [1, 2]}, "ü"]

    @handler()
    async def give(payload: int) -> Any:
        return results[payload]

    async with opened() as (queue, faulty):
        ids = [await queue.push("mail", number) for number in range(len(results))]
        await burst(faulty, give)
        assert [(await queue.get(job_id)).result for job_id in ids] == results


@virtual
async def test_a_context_says_that_its_job_was_stopped() -> None:
    seen: list[Context] = []

    @handler()
    async def wait(context: Context) -> None:
        seen.append(context)
        await asyncio.sleep(1000)

    async with opened() as (queue, faulty):
        await queue.push("mail", 0)
        async with working(faulty, wait):
            await wait_until(lambda: len(seen) == 1)
            assert not seen[0].cancelled
            seen[0].raise_if_cancelled()
        assert seen[0].cancelled
        assert (seen[0].attempt, seen[0].lease.job) == (1, (await only(queue)).id)

"""A worker does the same over every kind of queue: each job has the end that it should have."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import bucketq
from bucketq import Backoff, Context, GiveUp, Job, Queue, Retry, Snooze, Worker
from bucketq.worker import engine
from tests.contract.places import Place

JOBS = 300
AT_ONCE = Backoff(base_s=0, factor=1, max_s=0)


def worker_of(place: Place, **options: Any) -> Worker:
    """A worker with a connection of its own to the place."""
    url = place.connect_url()
    worker = Worker(url, mode=place.mode, concurrency=20, **options)

    @worker.handler("double")
    async def double(number: int) -> int:
        return 2 * number

    @worker.handler("plain")
    def plain(number: int, job: Job[int]) -> str:
        return f"{job.kind} {number}"

    @worker.handler("flaky", backoff=AT_ONCE)
    async def flaky(context: Context) -> int:
        if context.attempt < 3:
            raise ValueError("not yet")
        return context.attempt

    @worker.handler("later")
    async def later(context: Context) -> str:
        if context.attempt == 1:
            raise Retry("busy", delay_s=0.05)
        return "now"

    @worker.handler("snoozed", max_attempts=1)
    def snoozed(context: Context) -> str:
        if context.attempt == 1:
            raise Snooze(0.05)
        return "awake"

    add_hopeless(worker)
    return worker


def add_hopeless(worker: Worker) -> None:
    @worker.handler("hopeless", max_attempts=2, backoff=AT_ONCE)
    async def hopeless() -> None:
        raise ValueError("never")

    @worker.handler("given-up")
    async def give_up() -> None:
        raise GiveUp("no use")

    @worker.handler("slow", timeout_s=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    @worker.handler("unkept", max_attempts=2, backoff=AT_ONCE)
    async def unkept() -> object:
        return object()


KINDS = ("double", "plain", "flaky", "hopeless", "given-up", "later", "snoozed", "slow", "unkept")
DEAD = {"hopeless": "ValueError: never", "given-up": "no use", "slow": "took longer than 0.05 s"}


async def finished(queue: Queue[Any], count: int) -> list[Job[Any]]:
    """All jobs, once none of them is queued or running any more."""
    while True:
        jobs = [*(await queue.jobs(limit=2 * count)).jobs]
        if all(job.status in {"done", "dead"} for job in jobs):
            assert len(jobs) == count
            return jobs
        await asyncio.sleep(0.02)


async def test_every_job_of_a_mixed_lot_has_the_end_that_it_should_have(
    place: Place, queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine jobs that were claimed ahead would be released, and claimed once more.
    monkeypatch.setattr(engine, "_LONGEST_BACKLOG_S", 600.0)
    # Finished jobs leave early if they take a quarter of what the object may hold.
    await queue.configure(archive_after_s=3600, spill_bytes=16 << 20)
    specs: list[bucketq.JobSpec[Any]] = [
        bucketq.JobSpec(kind=KINDS[number % len(KINDS)], payload=number) for number in range(JOBS)
    ]
    specs += [bucketq.JobSpec(kind="double", payload="two")]
    ids = await queue.push_many(specs)
    worker = worker_of(place)
    running = asyncio.create_task(worker.run())
    jobs = {job.id: job for job in await finished(queue, len(ids))}
    worker.stop()
    await running
    for job_id, spec in zip(ids[:-1], specs, strict=False):
        check(jobs[job_id], spec.payload)
    unfit = jobs[ids[-1]]
    assert (unfit.status, unfit.failures) == ("dead", 1)
    assert "cannot be decoded as int" in unfit.errors[0].error
    ends = Counter(job.status for job in jobs.values())
    assert worker.counters.count("done") == ends["done"]
    assert worker.counters.count("dead") == ends["dead"]
    assert all(job.lost_leases == 0 for job in jobs.values())


def check(job: Job[Any], number: int) -> None:
    results = {"double": 2 * number, "plain": f"plain {number}", "flaky": 3, "later": "now"}
    results["snoozed"] = "awake"
    if job.kind in results:
        assert (job.status, job.result) == ("done", results[job.kind])
        assert job.attempt == {"flaky": 3, "later": 2, "snoozed": 2}.get(job.kind, 1)
        return
    reason = DEAD.get(job.kind, "its result cannot be stored")
    assert job.status == "dead"
    assert reason in job.errors[-1].error
    assert job.failures == (2 if job.kind in {"hopeless", "unkept"} else 1)


async def test_a_cancel_reaches_the_handler_of_a_job_that_runs(
    place: Place, queue: Queue[Any]
) -> None:
    await queue.configure(archive_after_s=3600, spill_bytes=16 << 20, heartbeat_s=0.1)
    inside, stopped = asyncio.Event(), asyncio.Event()
    worker = Worker(place.connect_url(), mode=place.mode)

    @worker.handler("mail")
    async def wait() -> None:
        inside.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    job_id = await queue.push("mail", 0)
    running = asyncio.create_task(worker.run())
    await inside.wait()
    assert await queue.cancel(job_id) == "requested"
    await stopped.wait()
    (job,) = await finished(queue, 1)
    assert job.outcome == "cancelled"
    worker.stop()
    await running


async def test_a_worker_in_a_hurry_gives_its_jobs_back_unharmed(
    place: Place, queue: Queue[Any]
) -> None:
    inside = asyncio.Event()
    worker = Worker(place.connect_url(), mode=place.mode, concurrency=2)

    @worker.handler("mail")
    async def wait() -> None:
        inside.set()
        await asyncio.sleep(60)

    await queue.push_many([bucketq.JobSpec(kind="mail", payload=0, max_attempts=1)] * 5)
    running = asyncio.create_task(worker.run())
    await inside.wait()
    worker.stop(hurry=True)
    await running
    jobs = (await queue.jobs()).jobs
    assert [(job.status, job.failures, job.lost_leases) for job in jobs] == [("queued", 0, 0)] * 5


async def test_a_burst_ends_when_everything_is_done(place: Place, queue: Queue[Any]) -> None:
    await queue.push_many([bucketq.JobSpec(kind="double", payload=number) for number in range(50)])
    worker = worker_of(place)
    await worker.run(burst=True, kinds=["double"])
    assert worker.counters.count("done") == 50
    await worker.run(burst=True, kinds=["double"])
    assert worker.counters.claimed == 0, "a worker can be run again, and counts from zero"

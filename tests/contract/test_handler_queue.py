"""Handlers use the queue of their worker, wherever they run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bucketq import Context, InvalidRequestError, JobSpec, Progress, Queue, Worker
from tests.contract.places import Place
from tests.unit.worker import process_handlers


async def run_jobs(place: Place, queue: Queue[Any], worker: Worker, *jobs: JobSpec[Any]) -> Any:
    """Push jobs, run a worker until they are done, and return their results."""
    worker.configure(place.connect_url(), mode=place.mode, concurrency=5)
    ids = await queue.push_many(jobs)
    running = asyncio.create_task(worker.run())
    try:
        return [await queue.wait(job_id, timeout_s=60) for job_id in ids]
    finally:
        worker.stop()
        await running


async def test_an_async_handler_pushes_waits_and_looks(place: Place, queue: Queue[Any]) -> None:
    worker = Worker()

    @worker.handler("double")
    async def double(number: int) -> int:
        return 2 * number

    @worker.handler("first")
    async def first(number: int, context: Context) -> list[Any]:
        job_id = await context.queue.push("double", number)
        result = await context.queue.wait(job_id, timeout_s=30)
        return [result, (await context.queue.get(context.job.id)).status]

    done = await run_jobs(place, queue, worker, *(JobSpec(kind="first", payload=n) for n in (1, 2)))
    assert done == [[2, "running"], [4, "running"]]


async def test_a_handler_in_a_thread_has_a_blocking_queue(place: Place, queue: Queue[Any]) -> None:
    worker = Worker()

    @worker.handler("double")
    def double(number: int) -> int:
        return 2 * number

    @worker.handler("first")
    def first(number: int, context: Context) -> Any:
        with pytest.raises(InvalidRequestError, match="queue_sync"):
            context.queue  # noqa: B018 - it raises
        return context.queue_sync.push_and_wait("double", number, timeout_s=30)

    done = await run_jobs(place, queue, worker, *(JobSpec(kind="first", payload=n) for n in (1, 2)))
    assert done == [2, 4]


async def test_a_handler_in_a_process_uses_the_queue_of_its_worker(
    place: Place, queue: Queue[Any]
) -> None:
    worker = Worker()
    worker.handler("plain", run_in="process")(process_handlers.use_queue)
    worker.handler("soon", run_in="process")(process_handlers.use_queue_soon)
    worker.handler("push", run_in="process")(process_handlers.push_some)
    kinds = ("plain", "soon", "push", "soon")
    done = await run_jobs(place, queue, worker, *(JobSpec(kind=k, payload=3) for k in kinds))
    assert done == [[0, 1, 2, 9, True], [0, 1, 2], ["next-0", "next-1", "next-2"], [0, 1, 2]]
    assert (await queue.stats()).counts["next"] == {"queued": 3}
    assert (await queue.stats()).counts["other"] == {"queued": 10}


@pytest.mark.parametrize("kind", ["plain", "soon"])
async def test_a_handler_in_a_process_reports_progress(
    place: Place, queue: Queue[Any], tmp_path: Path, kind: str
) -> None:
    go, seen = tmp_path / "go", list[Progress]()
    last = {"plain": Progress(1000, 1000, "rows"), "soon": Progress(1)}[kind]

    def note(progress: Progress) -> None:
        seen.append(progress)
        if progress == last:
            go.touch()

    await queue.configure(heartbeat_s=0.1)
    worker = Worker(place.connect_url(), mode=place.mode)
    worker.handler("plain", run_in="process")(process_handlers.report)
    worker.handler("soon", run_in="process")(process_handlers.report_soon)
    running = asyncio.create_task(worker.run())
    try:
        await queue.push_and_wait(kind, str(go), timeout_s=60, on_progress=note)
    finally:
        worker.stop()
        await running
    assert seen[-1] == last


async def test_a_handler_can_be_stopped_while_it_waits(place: Place, queue: Queue[Any]) -> None:
    worker, inside = Worker(), asyncio.Event()

    @worker.handler("first")
    async def first(context: Context) -> None:
        never = await context.queue.push("never", 0)
        inside.set()
        await context.queue.wait(never, timeout_s=600)

    worker.configure(place.connect_url(), mode=place.mode)
    job_id = await queue.push("first", 0)
    running = asyncio.create_task(worker.run())
    await inside.wait()
    worker.stop(hurry=True)
    await running
    assert (await queue.get(job_id)).status == "queued"

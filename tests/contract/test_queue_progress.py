"""What every queue promises about the progress of jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import InvalidRequestError, Progress, Queue
from tests.contract.places import Place

SOME = Progress(40, 100, "frames")


async def test_progress_comes_with_a_heartbeat_and_is_shown_until_the_attempt_ends(
    queue: Queue[Any],
) -> None:
    job_id = await queue.push("render", 1)
    (job,) = await queue.claim()
    assert (await queue.get(job_id)).progress is None
    (pulse,) = await queue.heartbeat(job, progress={job_id: SOME})
    assert pulse.held
    assert (await queue.get(job_id)).progress == SOME
    assert [each.progress for each in (await queue.jobs()).jobs] == [SOME]
    await queue.heartbeat(job)
    assert (await queue.get(job_id)).progress == SOME
    await queue.release(job)
    assert (await queue.get(job_id)).progress is None
    (job,) = await queue.claim()
    assert (await queue.get(job_id)).progress is None
    await queue.heartbeat(job, progress={job_id: Progress(1)})
    await queue.complete(job)
    assert (await queue.get(job_id)).progress is None


async def test_a_wait_reports_progress(queue: Queue[Any]) -> None:
    seen: list[Progress] = []
    news = asyncio.Event()

    async def note(progress: Progress) -> None:
        seen.append(progress)
        news.set()

    job_id = await queue.push("render", 1)
    waiting = asyncio.get_running_loop().create_task(queue.wait(job_id, on_progress=note))
    (job,) = await queue.claim()
    await queue.heartbeat(job, progress={job_id: Progress(1, 2)})
    async with asyncio.timeout(20):
        await news.wait()
    news.clear()
    await queue.heartbeat(job, progress={job_id: Progress(1, 2)})
    await queue.heartbeat(job, progress={job_id: Progress(2, 2, "done")})
    async with asyncio.timeout(20):
        await news.wait()
    await queue.complete(job, "ready")
    assert await waiting == "ready"
    assert seen == [Progress(1, 2), Progress(2, 2, "done")]


async def test_progress_under_a_lost_lease_is_ignored(queue: Queue[Any]) -> None:
    job_id = await queue.push("render", 1)
    (old,) = await queue.claim()
    await queue.release(old)
    (job,) = await queue.claim()
    (pulse,) = await queue.heartbeat(old, progress={job_id: SOME})
    assert not pulse.held
    assert (await queue.get(job_id)).progress is None
    await queue.complete(job)


@pytest.mark.parametrize(
    "bad",
    [Progress(float("nan")), Progress(1, note="x" * 257), Progress("1"), "40%"],  # type: ignore[arg-type]
)
async def test_bad_progress_is_rejected(queue: Queue[Any], bad: Any) -> None:
    job_id = await queue.push("render", 1)
    (job,) = await queue.claim()
    with pytest.raises(InvalidRequestError):
        await queue.heartbeat(job, progress={job_id: bad})


async def test_progress_is_seen_by_other_clients(place: Place) -> None:
    async with place.connect() as worker, place.connect() as other:
        job_id = await worker.push("render", 1)
        (job,) = await worker.claim()
        await worker.heartbeat(job, progress={job_id: SOME})
        assert (await other.get(job_id)).progress == SOME

"""What every queue promises about batches, and about jobs that wait for others."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq import (
    BatchCounts,
    BatchNotFoundError,
    DependencyNotFoundError,
    InvalidRequestError,
    JobFailedError,
    JobSpec,
    Queue,
    RejectedError,
)
from tests.contract.places import Place

REPORT = JobSpec(kind="report", payload={"to": "ada"}, priority=-1, tags={"team": "red"})


async def finish(queue: Queue[Any], *, retry: bool = True) -> str:
    """Claim the next job, and complete it; return its id."""
    (job,) = await queue.claim()
    if retry:
        await queue.complete(job)
    else:
        await queue.fail(job, "boom", retry=False)
    return job.id


async def test_a_batch_ends_with_its_callback(queue: Queue[Any]) -> None:
    async with queue.batch(on_done=REPORT) as batch:
        first = await batch.push("index", 1)
        others = await batch.push_many([JobSpec(kind="index", payload=n) for n in (2, 3)])
        assert (await queue.get(first)).batch_id == batch.id
        await finish(queue)
        info = await queue.get_batch(batch.id)
        assert (info.status, info.jobs, info.completed, info.open) == ("open", 3, 1, 2)
        assert (info.on_done, info.callback, info.closed_at) == ("report", None, None)
    assert await finish(queue, retry=False) == others[0]
    assert (await queue.stats()).counts.get("report") is None
    assert await queue.cancel(others[1]) == "cancelled"
    (info,) = await queue.batches()
    assert (info.status, info.on_done, info.failed, info.open) == ("done", None, 2, 0)
    (job,) = await queue.claim("report")
    assert job.done_batch == BatchCounts(batch.id, 3, completed=1, cancelled=1, dead=1)
    assert (job.id, job.tags, job.batch_id) == (info.callback, {"team": "red"}, None)
    await queue.redrive()
    await finish(queue)
    assert (await queue.stats()).counts["report"] == {"running": 1}


async def test_a_batch_whose_block_raises_is_cancelled(queue: Queue[Any]) -> None:
    async def produce() -> None:
        async with queue.batch(on_done=REPORT) as batch:
            await batch.push("index", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await produce()
    await finish(queue)
    (info,) = await queue.batches()
    assert (info.status, info.callback) == ("cancelled", None)
    assert (await queue.stats()).counts.get("report") is None


async def test_a_producer_continues_with_its_batch(queue: Queue[Any]) -> None:
    assert await queue.open_batch(REPORT, batch_id="nightly") == "nightly"
    await queue.push("index", 1, batch_id="nightly")
    async with queue.batch(on_done=REPORT, batch_id="nightly") as batch:
        await batch.push("index", 2)
    await finish(queue)
    await finish(queue)
    assert (await queue.get_batch("nightly")).status == "done"
    with pytest.raises(RejectedError, match="no more jobs"):
        await queue.push("index", 3, batch_id="nightly")


async def test_the_jobs_of_a_batch_are_listed(queue: Queue[Any]) -> None:
    async with queue.batch(batch_id="ours") as batch:
        ids = list(await batch.push_many([JobSpec(kind="index", payload=n) for n in range(5)]))
        await queue.push("index", 5)
    await finish(queue)
    found = await queue.jobs(batch_id="ours")
    assert [job.id for job in found.jobs] == ids
    found = await queue.jobs(batch_id="ours", statuses="queued", limit=2)
    assert [job.id for job in found.jobs] == ids[1:3]
    assert found.next_after is not None
    found = await queue.jobs(batch_id="ours", statuses="queued", after=found.next_after)
    assert ([job.id for job in found.jobs], found.next_after) == (ids[3:], None)
    assert (await queue.jobs(batch_id="other")).jobs == ()


async def test_the_jobs_of_a_batch_are_cancelled(queue: Queue[Any]) -> None:
    async with queue.batch(on_done=REPORT) as batch:
        some = [JobSpec(kind="index", payload=n) for n in range(700)]
        await batch.push_many(some)
        other = await queue.push("index", 0, priority=5)
        await finish(queue)
        (running,) = await queue.claim()
        first = await queue.cancel_jobs(batch.id)
        assert (first.cancelled, first.requested) == (698, 1)
        assert (await queue.heartbeat(running))[0].cancel_requested
        again = await queue.cancel_jobs(batch.id)
        assert (again.cancelled, again.requested) == (0, 0)
    await queue.release(running)
    (job,) = await queue.claim("report")
    assert job.done_batch == BatchCounts(batch.id, 700, completed=1, cancelled=699)
    assert [job.id for job in await queue.claim(limit=10)] == [other]
    with pytest.raises(BatchNotFoundError, match="never"):
        await queue.cancel_jobs("never")


async def test_what_is_wrong_with_a_batch_is_refused(queue: Queue[Any]) -> None:
    with pytest.raises(BatchNotFoundError):
        await queue.push("index", 1, batch_id="never")
    for verb in (queue.close_batch, queue.cancel_batch, queue.get_batch):
        with pytest.raises(BatchNotFoundError, match="never"):
            await verb("never")
    with pytest.raises(InvalidRequestError, match="JobSpec"):
        await queue.open_batch("report")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="id"):
        await queue.open_batch(JobSpec(kind="report", payload=1, id="mine"))
    with pytest.raises(InvalidRequestError, match="key"):
        await queue.open_batch(JobSpec(kind="report", payload=1, key="k"))
    with pytest.raises(InvalidRequestError, match="not open yet"):
        _ = queue.batch().id
    assert await queue.batches() == []


async def test_a_job_waits_for_others(queue: Queue[Any]) -> None:
    first, second = await queue.push("index", 1), await queue.push("index", 2)
    third = await queue.push("index", 3, after=[first, second], priority=-1)
    fourth = await queue.push("index", 4, after=third)
    job = await queue.get(third)
    assert (job.is_held, job.after, job.status) == (True, (first, second), "queued")
    stats = await queue.stats()
    assert (stats.counts, stats.held) == ({"index": {"queued": 4}}, {"index": 2})
    assert [await finish(queue) for _ in range(4)] == [first, second, third, fourth]
    assert await queue.claim() == []


async def test_a_job_dies_with_one_that_it_waits_for(queue: Queue[Any]) -> None:
    first = await queue.push("index", 1)
    second = await queue.push("index", 2, after=[first])
    third = await queue.push("index", 3, after=[first], on_failed="run")
    assert await finish(queue, retry=False) == first
    with pytest.raises(JobFailedError, match=f"job {first}, which it was to follow, is dead"):
        await queue.wait(second)
    assert await finish(queue) == third
    assert await queue.redrive([first, second]) == 2
    assert (await queue.get(second)).after == (first,)
    assert [await finish(queue) for _ in range(2)] == [first, second]


async def test_what_is_in_the_archive_has_ended(queue: Queue[Any]) -> None:
    first, second = await queue.push("index", 1), await queue.push("index", 2)
    await finish(queue)
    await queue.cancel(second)
    await queue.flush_archive()
    third = await queue.push("index", 3)
    assert not (await queue.get(await queue.push("index", 4, after=first))).is_held
    assert (await queue.get(await queue.push("index", 5, after=[first, third]))).after == (third,)
    dead = await queue.push("index", 6, after=[third, second])
    assert (await queue.get(dead)).status == "dead"
    specs = [JobSpec(kind="index", payload=n, after=[second], on_failed="run") for n in (7, 8)]
    (job, _) = await queue.push_many(specs)
    assert not (await queue.get(job)).is_held
    with pytest.raises(DependencyNotFoundError, match="never"):
        await queue.push("index", 9, after=[first, "never"])


async def test_jobs_of_one_push_wait_for_those_before_them(queue: Queue[Any]) -> None:
    specs = [
        JobSpec(kind="index", payload=1, id="a"),
        JobSpec(kind="index", payload=2, id="b", after=["a", "a"]),
        JobSpec(kind="index", payload=3, id="c", after=("b",)),
        JobSpec(kind="index", payload=4, id="d", after=[]),
    ]
    await queue.push_many(specs)
    assert [await finish(queue) for _ in range(4)] == ["a", "b", "c", "d"]
    with pytest.raises(DependencyNotFoundError):
        await queue.push_many([JobSpec(kind="index", payload=1, id="e", after="f")])
    with pytest.raises(InvalidRequestError, match="list"):
        await queue.push("index", 1, after=iter(["a"]))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="give after too"):
        await queue.push("index", 1, on_failed="run")


async def test_batches_and_held_jobs_outlive_a_queue_that_closes(place: Place) -> None:
    async with place.connect() as queue, queue.batch(on_done=REPORT) as batch:
        first = await batch.push("index", 1)
        second = await batch.push("index", 2, after=first)
    async with place.connect() as queue:
        assert await queue.claim("report") == []
        assert [await finish(queue) for _ in range(2)] == [first, second]
        (job,) = await queue.claim("report")
        assert job.done_batch == BatchCounts(batch.id, 2, completed=2)

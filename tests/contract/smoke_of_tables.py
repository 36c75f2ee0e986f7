"""One small test of each verb of what a queue holds beside its jobs, for ``smoke``.

These are batches, schedules, limits, history, workers and what operators did.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bucketq import JobSpec, Queue
from tests.contract import test_queue_history

PAYLOAD = {"to": "Ädä", "n": [1, 2.5, None]}


async def _announce(queue: Queue[Any], name: str) -> bool:
    return await queue.announce(name, run_id=name, host="h", pid=1, version="1", up_s=0)


async def _with_history(queue: Queue[Any]) -> str:
    """Switch history on, push a job, and return its id."""
    await queue.configure(history_retention_s=86400)
    return await queue.push("mail", 1)


async def batch(queue: Queue[Any], other: Queue[Any]) -> None:
    async with queue.batch(JobSpec(kind="sum", payload=0)) as opened:
        await opened.push("mail", 1)
    (job,) = await other.claim()
    await other.complete(job)
    assert [after.kind for after in await other.claim()] == ["sum"]


async def open_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    batch_id = await queue.open_batch(JobSpec(kind="sum", payload=0))
    found = await other.get_batch(batch_id)
    assert (found.status, found.on_done) == ("open", "sum")


async def close_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    batch_id = await other.open_batch(JobSpec(kind="sum", payload=0))
    assert (await queue.close_batch(batch_id)).status == "done"
    assert [after.kind for after in await other.claim()] == ["sum"]


async def cancel_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    batch_id = await other.open_batch(JobSpec(kind="sum", payload=0))
    assert (await queue.cancel_batch(batch_id)).status == "cancelled"
    assert (await other.get_batch(batch_id)).status == "cancelled"


async def cancel_jobs(queue: Queue[Any], other: Queue[Any]) -> None:
    async with other.batch(JobSpec(kind="sum", payload=0)) as opened:
        await opened.push_many(JobSpec(kind="mail", payload=n) for n in range(3))
    assert (await queue.cancel_jobs(opened.id)).cancelled == 3
    assert (await other.get_batch(opened.id)).cancelled == 3


async def get_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    async with other.batch(batch_id="ours") as opened:
        await opened.push("mail", 1)
    found = await queue.get_batch("ours")
    assert (found.status, found.jobs) == ("closed", 1)


async def batches(queue: Queue[Any], other: Queue[Any]) -> None:
    ids = [await other.open_batch() for _ in range(2)]
    assert [found.id for found in await queue.batches()] == ids


async def schedule(queue: Queue[Any], other: Queue[Any]) -> None:
    assert await queue.schedule("tick", "mail", PAYLOAD, every_s=3600) == "created"
    assert [found.payload for found in await other.schedules()] == [PAYLOAD]


async def schedules(queue: Queue[Any], other: Queue[Any]) -> None:
    for name in ("one", "two"):
        await other.schedule(name, "mail", 1, every_s=3600)
    assert [found.name for found in await queue.schedules()] == ["one", "two"]


async def unschedule(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.schedule("tick", "mail", 1, every_s=3600)
    assert await queue.unschedule("tick") is True
    assert await other.schedules() == []


async def pause_schedule(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.schedule("tick", "mail", 1, every_s=3600)
    await queue.pause_schedule("tick")
    assert [found.paused for found in await other.schedules()] == [True]


async def resume_schedule(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.schedule("tick", "mail", 1, every_s=3600)
    await other.pause_schedule("tick")
    await queue.resume_schedule("tick")
    assert [found.paused for found in await other.schedules()] == [False]


async def run_schedule(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.schedule("tick", "mail", 1, every_s=3600)
    job_id = await queue.run_schedule("tick")
    assert [job.id for job in await other.claim()] == [job_id]


async def limit(queue: Queue[Any], other: Queue[Any]) -> None:
    assert await queue.limit(kind="mail", running=1) == "created"
    await other.push_many([JobSpec(kind="mail", payload=number) for number in range(2)])
    assert len(await other.claim(limit=2)) == 1


async def unlimit(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.limit(kind="mail", running=1)
    assert await queue.unlimit(kind="mail") is True
    await other.push_many([JobSpec(kind="mail", payload=number) for number in range(2)])
    assert len(await other.claim(limit=2)) == 2


async def limits(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.limit(kind="mail", running=1)
    await other.push("mail", 1)
    await other.claim()
    (found,) = await queue.limits()
    assert (found.target, found.active, found.is_reached) == ("kind=mail", 1, True)


async def changes(queue: Queue[Any], other: Queue[Any]) -> None:
    job_id = await _with_history(other)
    found = [job.id async for each in queue.changes(follow=False) for job in each.jobs]
    assert found == [job_id]


async def history_range(queue: Queue[Any], other: Queue[Any]) -> None:
    await _with_history(other)
    before = await other.history_range()
    found = await queue.history_range()
    # A version that only moves rows may come at any time.
    assert found.first == before.first
    assert before.last <= found.last <= (await other.history_range()).last


async def version_at(queue: Queue[Any], other: Queue[Any]) -> None:
    await _with_history(other)
    await test_queue_history.copied(other)
    before = (await other.history_range()).last
    found = await queue.version_at(datetime.now(UTC) + timedelta(days=1))
    assert before <= found <= (await other.history_range()).last


async def forget_history(queue: Queue[Any], other: Queue[Any]) -> None:
    await _with_history(other)
    newest = (await other.history_range()).last
    assert await queue.forget_history(newest) == newest
    assert (await other.history_range()).first == newest


async def announce(queue: Queue[Any], other: Queue[Any]) -> None:
    assert await _announce(queue, "ada") is False
    assert [worker.name for worker in await other.workers()] == ["ada"]


async def workers(queue: Queue[Any], other: Queue[Any]) -> None:
    for name in ("bob", "ada"):
        await _announce(other, name)
    assert [worker.name for worker in await queue.workers()] == ["ada", "bob"]


async def drain(queue: Queue[Any], other: Queue[Any]) -> None:
    await _announce(other, "ada")
    assert await queue.drain("ada") == 1
    assert await _announce(other, "ada") is True


async def audit(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.pause("mail")
    (entry,) = await queue.audit()
    assert (entry.action, entry.about) == ("pause", ("kind mail",))

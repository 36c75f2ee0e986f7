"""One small test of each verb, for servers on which the whole contract of queues is not repeated.

What a verb means does not depend on the server: ``test_queue_*`` hold that on memory and files, and
on every server with ``--full``. What can depend on it is whether the bytes arrive and come back.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from bucketq import BatchState, Job, JobSpec, Queue, SettledJob
from bucketq.client.connect_arguments import Mode
from tests.contract import smoke_of_tables
from tests.contract.places import Place
from tests.servers.server import Server

Smoke = Callable[[Queue[Any], Queue[Any]], Awaitable[None]]
"""Uses a verb of the first queue, and sees the effect through the second."""

PAYLOADS: list[Any] = [{"to": "Ädä", "n": [1, 2.5, None]}, "two", "x" * 100_000]
LARGE = bytes(range(256)) * 4_200
"""More than one part of a side object."""
BATCH = ("spark", 1, 1)


async def _held(queue: Queue[Any], count: int = 1) -> list[Job[Any]]:
    """Push jobs and claim them."""
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(count)])
    return await queue.claim(limit=count)


async def _batch(queue: Queue[Any], count: int = 2) -> None:
    """Push jobs and claim them as a batch of a consumer."""
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(count)])
    await queue.open_consumer("spark")
    assert await queue.claim_batch(*BATCH) == BatchState(1, count)


async def _counts(queue: Queue[Any]) -> dict[str, int]:
    return (await queue.stats()).counts.get("mail", {})


async def _collect(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def push(queue: Queue[Any], other: Queue[Any]) -> None:
    ids = [await queue.push("mail", payload) for payload in PAYLOADS]
    found = [(job.id, job.payload) for job in await other.claim(limit=3)]
    assert found == list(zip(ids, PAYLOADS, strict=True))


async def push_many(queue: Queue[Any], other: Queue[Any]) -> None:
    ids = await queue.push_many([JobSpec(kind="mail", payload=payload) for payload in PAYLOADS])
    found = [(job.id, job.payload) for job in await other.claim(limit=3)]
    assert found == list(zip(ids, PAYLOADS, strict=True))


async def claim(queue: Queue[Any], other: Queue[Any]) -> None:
    await queue.push_many([JobSpec(kind="mail", payload=payload) for payload in PAYLOADS])
    jobs = [*await queue.claim(limit=2), *await other.claim(limit=2)]
    assert [job.payload for job in jobs] == PAYLOADS
    assert await queue.claim() == []


async def heartbeat(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    assert [pulse.held for pulse in await queue.heartbeat(job)] == [True]
    await other.complete(job)
    assert [pulse.held for pulse in await queue.heartbeat(job)] == [False]


async def complete(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    await queue.complete(job, PAYLOADS[:2])
    assert (await other.get(job.id)).result == PAYLOADS[:2]


async def complete_many(queue: Queue[Any], other: Queue[Any]) -> None:
    first, second = await _held(queue, 2)
    assert await queue.complete_many([(first, "one"), second]) == [True, True]
    assert await _counts(other) == {"done": 2}


async def fail(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    assert await queue.fail(job, "no route", retry=False) == "dead"
    assert [failure.error for failure in (await other.get(job.id)).errors] == ["no route"]


async def release(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    await queue.release(job)
    assert [again.attempt for again in await other.claim()] == [2]


async def release_many(queue: Queue[Any], other: Queue[Any]) -> None:
    assert await queue.release_many(await _held(queue, 2)) == [True, True]
    assert await _counts(other) == {"queued": 2}


async def cancel(queue: Queue[Any], other: Queue[Any]) -> None:
    job_id = await queue.push("mail", 1)
    assert await queue.cancel(job_id) == "cancelled"
    assert await other.claim() == []


async def set_priority(queue: Queue[Any], other: Queue[Any]) -> None:
    first, urgent = await queue.push_many([JobSpec(kind="mail", payload=n) for n in range(2)])
    await queue.set_priority(urgent, -1)
    assert [job.id for job in await other.claim(limit=2)] == [urgent, first]


async def redrive(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    await queue.fail(job, "", retry=False)
    assert await queue.redrive() == 1
    assert await _counts(other) == {"queued": 1}


async def purge(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    await queue.fail(job, "", retry=False)
    assert await queue.purge() == 1
    assert await _counts(other) == {"done": 1}


async def pause(queue: Queue[Any], other: Queue[Any]) -> None:
    await queue.push("mail", 1)
    await queue.pause("mail")
    assert await other.claim() == []


async def resume(queue: Queue[Any], other: Queue[Any]) -> None:
    await queue.push("mail", 1)
    await other.pause("mail")
    await queue.resume("mail")
    assert len(await other.claim()) == 1


async def configure(queue: Queue[Any], other: Queue[Any]) -> None:
    assert (await queue.configure(lease_s=77)).lease_s == 77
    assert (await other.settings()).lease_s == 77


async def settings(queue: Queue[Any], other: Queue[Any]) -> None:
    await other.configure(lease_s=88)
    assert (await queue.settings()).lease_s == 88


async def create_token(queue: Queue[Any], other: Queue[Any]) -> None:
    assert await queue.create_token("ci", "push")
    assert [token.name for token in await other.tokens()] == ["ci"]


async def tokens(queue: Queue[Any], other: Queue[Any]) -> None:
    for name in ("one", "two"):
        await other.create_token(name, "admin")
    assert [token.name for token in await queue.tokens()] == ["one", "two"]


async def revoke_token(queue: Queue[Any], other: Queue[Any]) -> None:
    await queue.create_token("ci", "push")
    (token,) = await queue.tokens()
    assert await queue.revoke_token(token.id) is True
    assert await other.tokens() == []


async def open_consumer(queue: Queue[Any], other: Queue[Any]) -> None:
    assert (await queue.open_consumer("spark")).epoch == 1
    assert (await other.open_consumer("spark")).epoch == 2


async def claim_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    assert await other.claim_batch(*BATCH) == BatchState(1, 2)


async def prepare_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    await queue.push("mail", 7)
    assert await other.prepare_batch("spark", 1, 2) == BatchState(2, 1)
    assert [job.payload for job in (await queue.read_batch("spark", 2)).jobs] == [7]


async def read_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    assert [job.payload for job in (await other.read_batch("spark", 1)).jobs] == [0, 1]


async def ack_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    assert await queue.ack_batch(*BATCH) == BatchState(1, 2)
    assert await _counts(other) == {"done": 2}


async def release_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    assert await queue.release_batch(*BATCH) == BatchState(1, 2)
    assert await _counts(other) == {"queued": 2}


async def consumers(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    assert [(one.name, one.pending) for one in await other.consumers()] == [("spark", 2)]


async def settle_batch(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    first, second = (await other.read_batch("spark", 1)).jobs
    settled = (
        SettledJob(job=first.id, lease=first.lease.lease),
        SettledJob(job=second.id, lease=second.lease.lease, error="no", retry=False),
    )
    assert await queue.settle_batch("spark", 1, settled) == BatchState(1, 2)
    assert await _counts(other) == {"done": 1, "dead": 1}


async def remove_consumer(queue: Queue[Any], other: Queue[Any]) -> None:
    await _batch(queue)
    assert await queue.remove_consumer("spark") is True
    assert await _counts(other) == {"queued": 2}


async def publish(queue: Queue[Any], other: Queue[Any]) -> None:
    assert await queue.publish("spark", 1, [JobSpec(kind="mail", payload=1)]) is True
    assert await other.publish("spark", 1, [JobSpec(kind="mail", payload=1)]) is False
    assert await other.publish("spark", 1, (), last=True) is False
    assert await queue.publish("spark", 1, ()) is True, "the writer was forgotten"
    assert await _counts(other) == {"queued": 1}


async def get(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(other)
    assert await queue.get(job.id) == job


async def jobs(queue: Queue[Any], other: Queue[Any]) -> None:
    ids = await other.push_many([JobSpec(kind="mail", payload=number) for number in range(3)])
    page = await queue.jobs(limit=2)
    assert [job.id for job in page.jobs] == ids[:2]


async def stats(queue: Queue[Any], other: Queue[Any]) -> None:
    await _held(other, 2)
    assert await _counts(queue) == {"running": 2}


async def snapshot(queue: Queue[Any], other: Queue[Any]) -> None:
    ids = await other.push_many([JobSpec(kind="mail", payload=number) for number in range(3)])
    assert [job.id for job in (await queue.snapshot()).jobs] == ids


async def flush_archive(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    await queue.complete(job)
    assert await queue.flush_archive() == 1
    assert await _counts(other) == {}


async def snooze(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(queue)
    assert await queue.snooze(job, 3600) == "queued"
    assert (await other.get(job.id)).snoozes == 1


async def open_payload(queue: Queue[Any], other: Queue[Any]) -> None:
    job_id = await other.push("film", LARGE)
    assert await _collect(queue.open_payload(job_id)) == LARGE


async def open_result(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(other)
    await other.complete(job, LARGE)
    assert await _collect(queue.open_result(job.id)) == LARGE


async def wait(queue: Queue[Any], other: Queue[Any]) -> None:
    (job,) = await _held(other)
    waiting = asyncio.get_running_loop().create_task(queue.wait(job.id))
    await other.complete(job, PAYLOADS[:2])
    assert await waiting == PAYLOADS[:2]


async def push_and_wait(queue: Queue[Any], other: Queue[Any]) -> None:
    waiting = asyncio.get_running_loop().create_task(queue.push_and_wait("add", [1, 2]))
    (job,) = await other.claim(wait_s=30)
    await other.complete(job, 3)
    assert await waiting == 3
    await queue.flush_archive()
    assert await queue.wait(job.id) == 3


VERBS: dict[str, Smoke] = {
    name: member
    for name, member in [*globals().items(), *vars(smoke_of_tables).items()]
    if inspect.iscoroutinefunction(member) and name[0] != "_"
}


def every_verb_has_a_smoke_test() -> None:
    # With those that a queue inherits, which are most of them.
    members = inspect.getmembers(Queue, callable)
    assert VERBS.keys() == {name for name, _ in members if name[0] != "_"}


@pytest.mark.parametrize(
    ("verb", "mode"),
    [
        # A server does not know the mode: in ordinary runs each verb has one of the two.
        pytest.param(verb, mode, marks=[] if number % 2 == place else pytest.mark.full)
        for number, verb in enumerate(VERBS)
        for place, mode in enumerate(("direct", "embedded"))
    ],
)
async def a_verb_takes_effect_on_the_server(server: Server, verb: str, mode: Mode) -> None:
    place = Place(server.url(), mode)
    async with place.connect() as queue, Place(place.url, "direct").connect() as other:
        await VERBS[verb](queue, other)


TESTS = (a_verb_takes_effect_on_the_server, every_verb_has_a_smoke_test)

"""What every queue promises about workers, and about what operators did."""

from __future__ import annotations

import getpass
from datetime import timedelta
from typing import Any

import pytest

from bucketq import InvalidRequestError, JobSpec, Queue, WorkerNotFoundError
from tests.contract.places import Place


async def announce(queue: Queue[Any], name: str, **fields: Any) -> bool:
    given: dict[str, Any] = {"run_id": f"run of {name}", "host": "h", "pid": 4711, "version": "1.2"}
    return await queue.announce(name, **(given | {"up_s": 60} | fields))


async def test_workers_are_listed_in_the_order_of_their_names(queue: Queue[Any]) -> None:
    assert await queue.workers() == []
    assert await announce(queue, "b", kinds=("mail", "sms"), concurrency=7) is False
    assert await announce(queue, "a") is False
    a, b = await queue.workers()
    assert (a.name, b.name, b.id, b.host, b.pid) == ("a", "b", "run of b", "h", 4711)
    assert (b.version, b.kinds, b.concurrency, b.draining) == ("1.2", ("mail", "sms"), 7, False)
    assert abs(b.at - b.since - timedelta(seconds=60)) < timedelta(seconds=1)
    assert await announce(queue, "a", leaving=True) is False
    assert [each.name for each in await queue.workers()] == ["b"]


async def test_the_jobs_of_a_worker_are_counted(queue: Queue[Any]) -> None:
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(3)])
    await queue.claim(worker="a", limit=2)
    await announce(queue, "a", running=2)
    [worker] = await queue.workers()
    assert worker.running == 2


async def test_a_worker_is_asked_to_finish_by_the_next_answer(queue: Queue[Any]) -> None:
    await announce(queue, "a")
    await announce(queue, "b")
    assert await queue.drain("a") == 1
    assert await announce(queue, "a") is True
    assert await announce(queue, "b") is False
    assert [each.draining for each in await queue.workers()] == [True, False]
    assert await queue.drain("run of b") == 1
    assert await announce(queue, "b") is True


async def test_an_unknown_worker_is_an_error_that_names_those_that_are_known(
    queue: Queue[Any],
) -> None:
    await announce(queue, "web-1")
    await announce(queue, "web-2")
    with pytest.raises(WorkerNotFoundError, match="web-1, web-2"):
        await queue.drain("web-3")


async def test_a_request_to_finish_outlives_the_process_that_made_it(place: Place) -> None:
    async with place.connect() as worker, place.connect(create=False) as operator:
        await announce(worker, "a")
        assert [each.name for each in await operator.workers()] == ["a"]
        await operator.drain("a")
    async with place.connect(create=False) as worker:
        assert await announce(worker, "a") is True


@pytest.mark.parametrize(
    "fields", [{"run_id": ""}, {"pid": -1}, {"running": 1.5}, {"up_s": "x"}, {"kinds": ("?",)}]
)
async def test_a_bad_announcement_is_rejected(queue: Queue[Any], fields: dict[str, Any]) -> None:
    with pytest.raises((InvalidRequestError, TypeError)):
        await announce(queue, "a", **fields)
    assert await queue.workers() == []


async def test_what_operators_do_is_kept(queue: Queue[Any]) -> None:
    job = await queue.push("mail", 1)
    await queue.claim("sms")
    assert await queue.audit() == []
    await queue.pause("mail")
    await queue.resume()
    await queue.configure(max_attempts=7)
    await queue.cancel(job)
    found = [(each.action, each.about, each.count) for each in await queue.audit()]
    assert found == [
        ("pause", ("kind mail",), 0),
        ("resume", (), 0),
        ("configure", ("max_attempts=7",), 1),
        ("cancel", (job,), 1),
    ]
    [last] = await queue.audit(limit=1)
    assert last.action == "cancel"
    assert last.until is None


async def test_the_audit_names_who_did_it(queue: Queue[Any]) -> None:
    await queue.pause()
    [entry] = await queue.audit()
    assert entry.by.startswith((f"{getpass.getuser()}@", "client "))


async def test_the_audit_is_bounded_and_repeats_are_one_entry(queue: Queue[Any]) -> None:
    jobs = await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(20)])
    await queue.configure(max_audit=3)
    for job in jobs:
        await queue.cancel(job)
    await queue.pause()
    await queue.resume()
    cancelled, _, resumed = await queue.audit()
    assert (cancelled.action, cancelled.count) == ("cancel", 20)
    assert cancelled.about == tuple(jobs[:10])
    assert cancelled.until is not None
    assert resumed.action == "resume"

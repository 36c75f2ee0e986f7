"""The blocking face: all the verbs, to the same effect, for programs without an event loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import bucketq
from bucketq import (
    BlockingQueue,
    ClosedError,
    InvalidRequestError,
    JobNotFoundError,
    JobSpec,
    KeyConflictError,
    LeaseLostError,
    Queue,
    QueueNotFoundError,
)
from tests.contract.places import Place


def verbs(face: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(face)
        if not name.startswith("_") and callable(member)
    }


def test_every_verb_of_a_queue_has_a_blocking_form_with_its_name_and_words() -> None:
    asked, blocking = verbs(Queue), verbs(BlockingQueue)
    assert blocking.keys() == asked.keys()
    for name, verb in blocking.items():
        assert verb.__name__ == name
        assert verb.__doc__ == asked[name].__doc__
        assert not inspect.iscoroutinefunction(verb)


def test_a_job_is_pushed_claimed_and_completed(place: Place) -> None:
    with place.connect_sync(worker="ada") as queue:
        job_id = queue.push("mail", {"to": "ada"}, priority=1, tags={"a": "b"})
        more = queue.push_many([JobSpec(kind="mail", payload=n) for n in range(3)])
        assert queue.stats().total("queued") == 4
        jobs = queue.claim("mail", limit=4)
        assert [job.id for job in jobs] == [*more, job_id]
        assert [pulse.held for pulse in queue.heartbeat(jobs)] == [True] * 4
        queue.complete(jobs[0], "result")
        assert queue.fail(jobs[1], ValueError("bad"), retry=False) == "dead"
        queue.release(jobs[2])
        assert queue.cancel(jobs[3].id) == "requested"
        assert queue.get(jobs[0].id).result == "result"
        assert [job.id for job in queue.jobs(statuses="dead").jobs] == [more[1]]
        assert queue.redrive() == 1
    with place.connect_sync() as queue:
        assert len(queue.snapshot().jobs) == 4
        assert queue.cancel(more[2]) == "cancelled"
        (job,) = queue.claim(wait_s=30)
        assert job.id == more[1]
        assert queue.fail(job, "again", retry=False) == "dead"
        assert queue.purge() == 1


def test_operators_have_their_verbs(place: Place) -> None:
    with place.connect_sync() as queue:
        queue.push("mail", 1)
        queue.pause()
        assert queue.claim() == []
        queue.resume()
        assert queue.configure(lease_s=60).lease_s == 60
        assert queue.settings().lease_s == 60
        assert len(queue.claim()) == 1


def test_errors_are_the_same(place: Place) -> None:
    with pytest.raises(QueueNotFoundError):
        place.connect_sync(create=False).__enter__()
    with place.connect_sync() as queue:
        queue.push("mail", 1, key="k")
        with pytest.raises(KeyConflictError):
            queue.push("mail", 2, key="k")
        with pytest.raises(JobNotFoundError):
            queue.get("nobody")
        with pytest.raises(InvalidRequestError):
            queue.claim(limit=0)
        (job,) = queue.claim()
        queue.release(job)
        with pytest.raises(LeaseLostError):
            queue.complete(job)
        with pytest.raises(TypeError):
            queue.push()  # type: ignore[call-arg]
        with pytest.raises(AttributeError):
            _ = queue.no_such_verb  # type: ignore[attr-defined]


def test_both_faces_meet_in_one_queue(place: Place) -> None:
    async def claim() -> Any:
        async with place.connect() as queue:
            (job,) = await queue.claim(wait_s=30)
            await queue.complete(job, "by the other face")
            return job.payload

    with place.connect_sync() as queue:
        job_id = queue.push("mail", "from here")
        assert asyncio.run(claim()) == "from here"
        assert queue.get(job_id).result == "by the other face"


def test_a_waiting_claim_lets_other_threads_work(place: Place) -> None:
    with place.connect_sync() as queue, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(queue.claim, wait_s=30)
        job_id = queue.push("mail", 1)
        assert [job.id for job in waiting.result(timeout=60)] == [job_id]


def test_many_threads_share_one_queue(place: Place) -> None:
    with place.connect_sync() as queue, ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda number: queue.push("mail", number), range(24)))
        jobs = [job for jobs in threads.map(lambda _: queue.claim(limit=3), ids) for job in jobs]
    assert sorted(job.id for job in jobs) == sorted(ids)


def test_typed_payloads_go_in_and_out(place: Place) -> None:
    with place.connect_sync(payload_type=Order) as queue:
        queue.push("order", Order(7))
        (job,) = queue.claim()
        assert job.payload == Order(7)


def test_a_closed_queue_says_so_and_leaves_no_thread(place: Place) -> None:
    before = set(threading.enumerate())
    with place.connect_sync() as queue:
        queue.push("mail", 1)
    with pytest.raises(ClosedError, match="connect again"):
        queue.push("mail", 2)
    # gRPC ends its own thread with the last of its objects, which the queue refers to.
    del queue
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_a_queue_that_was_not_opened_says_how(place: Place) -> None:
    connection = place.connect_sync()
    with pytest.raises(ClosedError, match=r"with bucketq\.connect_sync"):
        connection.push("mail", 1)
    with pytest.raises(AttributeError):
        _ = connection.no_such_verb


def test_an_error_inside_the_block_comes_out_of_it(place: Place) -> None:
    with pytest.raises(ZeroDivisionError), place.connect_sync() as queue:
        queue.push("mail", 1 // 0)
    with place.connect_sync() as queue:
        queue.push("mail", 1)


@dataclass
class Order:
    id: int


def test_the_signatures_of_the_blocking_verbs_can_be_read() -> None:
    parameters = inspect.signature(bucketq.BlockingQueue.push).parameters
    assert {"kind", "payload", "options"} <= set(parameters)
    assert {"key", "run_at"} <= set(bucketq.PushOptions.__annotations__)

"""Pushes through a handler, to the queue of its worker."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

import bucketq
from bucketq import Context, Job, Worker
from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.testing import Workbench
from tests.unit.worker import process_handlers

_numbers = itertools.count()


@dataclass
class Email:
    to: str


def new_worker() -> Worker:
    return Worker(f"memory://typed-{next(_numbers)}")


async def test_a_job_has_the_kind_the_payload_and_the_defaults_of_its_handler() -> None:
    worker = new_worker()

    @worker.handler("email", priority=-3)
    async def send(email: Email) -> str:
        return email.to

    @worker.handler("clean")
    def clean() -> None: ...

    async with worker.connect() as queue:
        first = await send.push(Email("ada"))
        second = await send.push(Email("bob"), priority=5, key="once")
        again = await send.push(Email("bob"), priority=5, key="once")
        await clean.push()
        await queue.push_many([send.job(Email("eve"), tags={"a": "b"}), clean.job()])
        jobs = (await queue.jobs()).jobs
    assert [(job.kind, job.payload, job.priority) for job in jobs] == [
        ("email", {"to": "ada"}, -3),
        ("email", {"to": "bob"}, 5),
        ("clean", None, 0),
        ("email", {"to": "eve"}, -3),
        ("clean", None, 0),
    ]
    assert jobs[0].id == first
    assert again == second
    assert again.duplicate
    assert await send(Email("here")) == "here", "it can be called as before"


def test_code_without_asyncio_pushes_too() -> None:
    worker = new_worker()

    @worker.handler("email")
    def send(email: Email) -> str:
        return email.to

    with worker.connect_sync() as queue:
        job_id = send.push_sync(Email("ada"))
        assert queue.get(job_id).payload == {"to": "ada"}


async def test_handlers_push_to_the_queue_of_the_worker_that_runs_them() -> None:
    worker, seen = new_worker(), list[str]()

    @worker.handler("first")
    async def first(email: Email) -> None:
        await second.push(Email(email.to + " 2"))

    @worker.handler("second")
    def second(job: Job[Email], context: Context) -> None:
        assert context.attempt == 1
        third.push_sync(job.payload.to + " 3")

    @worker.handler("third")
    def third(to: str) -> None:
        seen.append(to)

    assert worker.url is not None
    async with bucketq.connect(worker.url) as queue:
        await queue.push("first", Email("ada"))
        await worker.run(burst=True)
    assert seen == ["ada 2 3"]


async def test_a_push_without_an_open_queue_says_how_to_open_it() -> None:
    worker = new_worker()

    @worker.handler("email")
    def send(email: Email) -> None: ...

    async with worker.connect():
        pass
    with pytest.raises(InvalidRequestError, match="async with worker"):
        await send.push(Email("ada"))
    with pytest.raises(InvalidRequestError, match="connect_sync"):
        send.push_sync(Email("ada"))


async def test_a_payload_that_does_not_fit_is_refused_before_it_is_pushed() -> None:
    worker = new_worker()

    @worker.handler("email")
    def send(email: Email) -> None: ...

    async with worker.connect() as queue:
        with pytest.raises(PayloadError, match="to"):
            await send.push({"from": "ada"})  # type: ignore[arg-type]
        assert not (await queue.jobs()).jobs


async def test_a_blocking_push_on_the_loop_of_the_queue_is_refused() -> None:
    worker = new_worker()

    @worker.handler("email")
    def send(email: Email) -> None: ...

    async with worker.connect():
        with pytest.raises(InvalidRequestError, match="would block the event loop"):
            send.push_sync(Email("ada"))
        await asyncio.to_thread(send.push_sync, Email("ada"))


def test_a_workbench_gets_what_is_pushed_through_handlers() -> None:
    worker = new_worker()

    @worker.handler("email")
    async def send(email: Email) -> None:
        if email.to == "ada":
            await send.push(Email("bob"))

    with Workbench(worker) as bench:
        send.push_sync(Email("ada"))
        assert [ran.job.payload for ran in bench.run()] == [{"to": "ada"}, {"to": "bob"}]
    with pytest.raises(InvalidRequestError, match="not open"):
        send.push_sync(Email("ada"))


def test_a_function_that_takes_no_attributes_is_a_handler_all_the_same() -> None:
    worker = new_worker()
    worker.handler("upper")("ada".upper)
    worker.handler("who", run_in="process")(process_handlers.who)
    with Workbench(worker) as bench:
        bench.queue.push("upper", None)
        [ran] = bench.run()
        assert ran.job.result == "ADA"


def test_a_priority_is_checked_when_the_handler_is_registered() -> None:
    with pytest.raises(InvalidRequestError, match="priority"):
        new_worker().handler("email", priority=10**12)


def test_what_makes_unique_names_is_a_function() -> None:
    unique: Any = "user-17"
    with pytest.raises(InvalidRequestError, match="unique=lambda user"):
        new_worker().handler("email", unique=unique)(lambda email: email)


async def test_a_handler_names_its_unique_jobs() -> None:
    worker = new_worker()

    @worker.handler("email", unique=lambda email: email.to)
    def send(email: Email) -> None: ...

    async with worker.connect() as queue:
        first = await send.push(Email("ada"))
        again = await send.push(Email("ada"))
        other = await send.push(Email("ada"), unique="other")
        assert (again, again.duplicate, other.duplicate) == (first, True, False)
        assert send.job(Email("bob")).unique == "bob"
        assert (await queue.get(first)).unique == "ada"

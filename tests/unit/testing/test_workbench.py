"""A workbench: what users' own tests see of their pushes and of their handlers."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import bucketq
from bucketq.testing import Workbench

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)


class Email(msgspec.Struct):
    to: str


def make_worker() -> bucketq.Worker:
    """A worker with handlers of every kind; its own address is not used."""
    worker = bucketq.Worker("s3://nowhere/queue.json")

    @worker.handler("email", backoff=bucketq.Backoff(base_s=60, factor=2, max_s=3600))
    def send(email: Email, job: bucketq.Job[Any]) -> str:
        if job.attempt < 3 and email.to == "flaky":
            message = f"try {job.attempt}"
            raise ConnectionError(message)
        return f"sent to {email.to}"

    @worker.handler("ask", max_attempts=2)
    async def ask(wish: str) -> None:
        await asyncio.sleep(0)
        if wish == "retry":
            raise bucketq.Retry("not yet", delay_s=10)
        raise bucketq.GiveUp("never")

    @worker.handler("hang", timeout_s=3600)
    async def hang() -> None:
        await asyncio.Event().wait()

    @worker.handler("spin", timeout_s=3600)
    def spin(context: bucketq.Context) -> None:
        while not context.cancelled:
            time.sleep(0.001)
        context.raise_if_cancelled()

    return worker


def test_what_was_pushed_is_shown_in_order_by_kind_and_altogether() -> None:
    with Workbench() as bench:
        assert bench.pushed() == []
        bench.queue.push("email", {"to": "ada"})
        bench.queue.push("audit", [1], priority=-1, key="a", tags={"of": "ada"})
        bench.queue.push("email", {"to": "bob"})
        assert bench.pushed("email") == [{"to": "ada"}, {"to": "bob"}]
        assert bench.pushed() == [{"to": "ada"}, [1], {"to": "bob"}]
        [audit] = bench.jobs("audit")
        assert (audit.key, audit.priority, audit.tags) == ("a", -1, {"of": "ada"})


def test_more_jobs_than_a_page_holds_are_all_shown() -> None:
    with Workbench() as bench:
        bench.queue.push_many(bucketq.JobSpec(kind="n", payload=n) for n in range(2500))
        assert bench.pushed("n") == list(range(2500))


def test_jobs_run_on_the_thread_of_the_test_in_the_order_of_the_queue() -> None:
    worker = bucketq.Worker()
    seen: list[object] = []

    @worker.handler("plain")
    def plain(n: int) -> None:
        seen.append((n, threading.current_thread()))

    @worker.handler("async", timeout_s=60)
    async def later(n: int) -> None:
        await asyncio.sleep(0.001)
        seen.append((n, threading.current_thread()))

    with Workbench(worker) as bench:
        bench.queue.push("plain", 2)
        bench.queue.push("async", 3)
        bench.queue.push("plain", 1, priority=-1)
        assert [ran.end for ran in bench.run()] == ["done"] * 3
        assert bench.run() == []
    here = threading.current_thread()
    assert seen == [(1, here), (2, here), (3, here)]


def test_results_and_the_state_of_a_job_are_seen_afterwards_however_much_later() -> None:
    with Workbench(make_worker()) as bench:
        job_id = bench.queue.push("email", {"to": "ada"})
        [ran] = bench.run()
        assert (ran.job.id, ran.end, ran.error) == (job_id, "done", None)
        bench.advance(timedelta(days=30))
        assert bench.queue.settings().archive_after_s > timedelta(days=30).total_seconds()
        assert bench.job(job_id).result == "sent to ada"


def test_retries_wait_for_time_to_pass_and_nothing_is_raised() -> None:
    with Workbench(make_worker(), at=NOON) as bench:
        job_id = bench.queue.push("email", {"to": "flaky"})
        [ran] = bench.run()
        assert ran.end == "retried"
        assert isinstance(ran.error, ConnectionError)
        assert bench.job(job_id).status == "queued"
        bench.advance(29)
        assert bench.run() == []
        bench.advance(31)
        assert [ran.end for ran in bench.run()] == ["retried"]
        assert bench.advance_to_next()
        assert timedelta(minutes=2) <= bench.now - NOON <= timedelta(minutes=3)
        [ran] = bench.run()
        assert (ran.end, ran.job.attempt, ran.job.failures) == ("done", 3, 2)
        assert not bench.advance_to_next()


def test_the_recorded_error_shows_the_handler_and_nothing_of_the_bench() -> None:
    with Workbench(make_worker()) as bench:
        bench.queue.push("email", {"to": "flaky"})
        [ran] = bench.run()
    recorded = ran.job.errors[-1].error
    assert recorded.startswith("ConnectionError: try 1")
    assert "in send" in recorded
    assert "bucketq/testing/" not in recorded


def test_handlers_get_their_arguments_as_in_production() -> None:
    with Workbench(make_worker()) as bench:
        bench.queue.push("ask", "retry")
        bench.queue.push("ask", "give up")
        assert [ran.end for ran in bench.run(raise_errors=True)] == ["retried", "dead"]
        bench.advance(9.9)
        assert bench.run() == []
        bench.advance(0.1)
        assert [ran.end for ran in bench.run()] == ["dead"]
        assert [job.errors[-1].error for job in bench.jobs()] == ["not yet", "never"]


def test_a_payload_that_does_not_fit_is_dead_at_once_with_an_error_that_users_know() -> None:
    with Workbench(make_worker()) as bench:
        bench.queue.push("email", {"from": "ada"})
        [ran] = bench.run()
        assert ran.end == "dead"
        assert isinstance(ran.error, bucketq.PayloadError)


@pytest.mark.parametrize("kind", ["hang", "spin"])
def test_time_outs_can_be_shortened_to_what_a_test_can_wait_for(kind: str) -> None:
    with Workbench(make_worker()) as bench:
        bench.queue.push(kind, None, max_attempts=1)
        [ran] = bench.run(timeout_s=0.02)
        assert ran.end == "dead"
        assert isinstance(ran.error, TimeoutError)
        assert ran.job.errors[-1].error == "it took longer than 0.02 s, and was stopped"


def test_a_cancellation_reaches_a_handler_that_runs() -> None:
    worker = bucketq.Worker()
    with Workbench(worker) as unused:
        assert unused.pushed() == []

    @worker.handler("long")
    async def long(job: bucketq.Job[Any]) -> None:
        await bench.async_queue.cancel(job.id)
        await asyncio.Event().wait()

    with Workbench(worker) as bench:
        bench.queue.push("long", None)
        [ran] = bench.run()
        assert (ran.end, ran.job.outcome) == ("cancelled", "cancelled")


def test_the_first_error_of_a_handler_is_raised_on_request_once_its_job_is_settled() -> None:
    with Workbench(make_worker()) as bench:
        flaky = bench.queue.push("email", {"to": "flaky"})
        next_one = bench.queue.push("email", {"to": "ada"})
        with pytest.raises(ConnectionError, match="try 1") as caught:
            bench.run(raise_errors=True)
        assert any("send" in entry.name for entry in caught.traceback)
        assert bench.job(flaky).failures == 1
        assert bench.job(next_one).attempt == 0
        assert [ran.end for ran in bench.run(raise_errors=True)] == ["done"]


@pytest.mark.parametrize("outcome", [pytest.fail.Exception("enough"), KeyboardInterrupt()])
def test_what_is_meant_for_the_test_passes_through_a_handler(outcome: BaseException) -> None:
    worker = bucketq.Worker()

    @worker.handler("end")
    def end() -> None:
        raise outcome

    with Workbench(worker) as bench:
        bench.queue.push("end", None)
        with pytest.raises(type(outcome)):
            bench.run()


def test_what_a_handler_pushes_runs_as_well_whichever_face_of_the_queue_it_uses() -> None:
    worker = bucketq.Worker()

    @worker.handler("first")
    def first() -> None:
        bench.queue.push("second", None)

    @worker.handler("second")
    async def second() -> None:
        await bench.async_queue.push("third", None)

    @worker.handler("third")
    async def third() -> None:
        async with bucketq.connect(bench.url) as queue:
            await queue.push("fourth", None)

    with Workbench(worker) as bench:
        bench.queue.push("first", None)
        assert [ran.job.kind for ran in bench.run()] == ["first", "second", "third"]
        assert len(bench.jobs("fourth")) == 1


def test_code_that_connects_by_address_sees_the_stopped_clock() -> None:
    with Workbench(make_worker(), at=NOON) as bench:
        with bucketq.connect_sync(bench.url) as queue:
            queue.push("email", {"to": "ada"}, delay_s=60)
            assert queue.claim("email") == []
        assert bench.run() == []
        assert bench.jobs()[0].pushed_at == NOON
        bench.advance(60)
        assert [ran.end for ran in bench.run()] == ["done"]


def test_two_workbenches_share_nothing_and_one_that_is_opened_again_is_empty() -> None:
    worker = make_worker()
    with Workbench(worker) as one, Workbench(worker) as other:
        one.queue.push("email", {"to": "ada"})
        assert other.pushed() == []
    with one:
        assert one.pushed() == []


async def test_async_tests_await_the_same_things() -> None:
    with Workbench(make_worker()) as bench:
        job_id = await bench.async_queue.push("email", {"to": "ada"})
        assert bench.pushed("email") == [{"to": "ada"}]
        [ran] = await bench.run_async()
        assert ran.job.id == job_id
        assert (await bench.async_queue.get(job_id)).result == "sent to ada"


async def test_a_run_that_is_cancelled_stops_its_handler() -> None:
    worker = bucketq.Worker()
    began, stopped = asyncio.Event(), asyncio.Event()

    @worker.handler("hang")
    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with Workbench(worker) as bench:
        await bench.async_queue.push("hang", None)
        running = asyncio.create_task(bench.run_async())
        await began.wait()
        running.cancel()
        await asyncio.wait([running])
        async with asyncio.timeout(5):
            await stopped.wait()


def test_a_run_can_be_limited_to_some_kinds_and_to_some_attempts() -> None:
    with Workbench(make_worker()) as bench:
        for name in ("ada", "bob", "eve"):
            bench.queue.push("email", {"to": name})
        bench.queue.push("ask", "give up", priority=-1)
        assert [ran.job.kind for ran in bench.run("email", limit=2)] == ["email", "email"]
        assert [ran.job.kind for ran in bench.run(["ask"])] == ["ask"]
        assert len(bench.run()) == 1


def test_jobs_that_push_each_other_for_ever_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketq.testing.workbench._MOST_JOBS", 50)
    worker = bucketq.Worker()

    @worker.handler("again")
    def again() -> None:
        bench.queue.push("again", None)

    with Workbench(worker) as bench:
        bench.queue.push("again", None)
        with pytest.raises(bucketq.InvalidRequestError, match="without end; pass run"):
            bench.run()
        assert len(bench.run(limit=3)) == 3


def test_settings_of_the_queue_hold_as_in_production() -> None:
    with Workbench(make_worker()) as bench:
        bench.queue.configure(max_attempts=1)
        bench.queue.push("email", {"to": "flaky"})
        assert [ran.end for ran in bench.run()] == ["dead"]


def test_several_workers_share_a_bench_unless_they_want_the_same_kind() -> None:
    other = bucketq.Worker()

    @other.handler("audit")
    def audit() -> None:
        """Do nothing."""

    with Workbench(make_worker(), other) as bench:
        bench.queue.push("audit", None)
        assert [ran.end for ran in bench.run()] == ["done"]
    with pytest.raises(bucketq.InvalidRequestError, match="'audit' has a handler already"):
        Workbench(other, other)


def test_errors_about_wrong_use_say_what_to_do() -> None:
    bench = Workbench(make_worker())
    for use in (lambda: bench.queue, lambda: bench.url, bench.run, lambda: bench.advance(1)):
        with pytest.raises(bucketq.ClosedError, match="with Workbench"):
            use()
    with bench:
        queue = bench.queue
        with pytest.raises(bucketq.InvalidRequestError, match="open already"):
            bench.__enter__()
        with pytest.raises(bucketq.InvalidRequestError, match="it has handlers for email, ask"):
            bench.run("mail")
        with pytest.raises(bucketq.InvalidRequestError, match="limit"):
            bench.run(limit=0)
        with pytest.raises(bucketq.InvalidRequestError, match="by"):
            bench.advance(-1)
    with pytest.raises(bucketq.ClosedError):
        queue.push("email", None)
    with (
        Workbench() as empty,
        pytest.raises(bucketq.InvalidRequestError, match="pass Workbench a worker"),
    ):
        empty.run()
    with pytest.raises(bucketq.InvalidRequestError, match="no time zone"):
        Workbench(at=datetime(2030, 1, 1))  # noqa: DTZ001 - it is refused for that


async def test_a_blocking_run_on_an_event_loop_is_an_error_that_names_run_async() -> None:
    with Workbench(make_worker()) as bench:
        with pytest.raises(bucketq.InvalidRequestError, match=r"await bench\.run_async"):
            bench.run()
        queue = bench.async_queue
    with pytest.raises(bucketq.ClosedError, match="the workbench is closed"):
        await queue.push("email", None)


def test_advancing_the_clock_lets_jobs_expire() -> None:
    with Workbench(make_worker()) as bench:
        bench.queue.push("email", "late", expires_in_s=60)
        bench.advance(59)
        assert [job.status for job in bench.jobs()] == ["queued"]
        bench.advance(1)
        assert [job.outcome for job in bench.jobs()] == ["expired"]
        with pytest.raises(bucketq.JobExpiredError):
            bench.queue.wait(bench.jobs()[0].id)


def test_large_payloads_and_results_are_plain_values() -> None:
    worker = bucketq.Worker()

    @worker.handler("film")
    def film(content: bytes, context: bucketq.Context) -> bytes:
        context.push("rows", {"rows": [1] * 50_000})
        return content * 2

    @worker.handler("rows")
    async def rows(content: dict[str, list[int]]) -> int:
        return sum(content["rows"])

    @worker.handler("stream")
    async def stream(context: bucketq.Context) -> int:
        return sum([len(chunk) async for chunk in context.job.open_payload()])

    with Workbench(worker) as bench:
        job_id = bench.queue.push("film", bytes(100_000))
        bench.queue.push("stream", io.BytesIO(bytes(17 << 20)))
        assert [len(each) for each in bench.pushed()] == [100_000, 17 << 20]
        ran = {each.job.kind: each.job for each in bench.run(raise_errors=True)}
        assert ran["film"].result == bytes(200_000)
        assert (ran["rows"].result, ran["stream"].result) == (50_000, 17 << 20)
        assert bench.pushed("rows") == [{"rows": [1] * 50_000}]
        assert bench.job(job_id).result == bench.queue.wait(job_id)


async def test_large_payloads_are_read_on_another_loop() -> None:
    with Workbench() as bench:
        job_id = await bench.async_queue.push("film", bytes(100_000))
        chunks = [chunk async for chunk in bench.async_queue.open_payload(job_id)]
        assert b"".join(chunks) == bytes(100_000)

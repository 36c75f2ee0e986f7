"""Batches: jobs gather while others are under way, and a bad one is found among the good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.model.records import Failure, JobRecord
from bucketq.spark.handlers import batch_runner
from bucketq.spark.handlers.batch_runner import BatchFailed, SparkRunner
from bucketq.spark.handlers.batch_size import BatchSize
from bucketq.spark.handlers.executor_task import HandlerOutcome, Isolation
from bucketq.spark.handlers.spark_cluster import SparkCluster
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import HandlerFailed
from bucketq.worker.handlers import bind
from bucketq.worker.runners.reply import how_it_ended, reply_done, reply_failed
from tests.unit.worker.engine_harness import claimed_job, until

PATIENCE_S = 20


class FakeCluster(SparkCluster):
    """A cluster whose jobs are their payloads: what each number does is up to a test."""

    def __init__(self) -> None:
        self.batches: list[tuple[Isolation, list[Any]]] = []
        self.deadly: set[Any] = set()
        """End the process that runs them; reported if each has a process of its own."""
        self.devastating: set[Any] = set()
        """End the executor as well, so that not even that helps."""
        self.unbegun: set[Any] = set()
        """Are not begun the first time."""
        self.gate = threading.Event()
        self.gate.set()
        self.interrupted: list[str] = []
        self.deaf = 0
        """How often an interruption comes before there is anything to interrupt."""
        self.gone: Exception | None = None
        self.refusal: Exception | None = None

    def submit(
        self, jobs: Sequence[JobRecord], isolation: Isolation, tag: str
    ) -> list[HandlerOutcome]:
        payloads = [msgspec.json.decode(job.payload) for job in jobs]
        self.batches.append((isolation, payloads))
        assert self.gate.wait(PATIENCE_S)
        if self.refusal is not None:
            raise self.refusal
        dead = self.devastating | (self.deadly if isolation == "shared" else set())
        if tag in self.interrupted or self.gone or dead.intersection(payloads):
            raise BatchFailed("python worker exited")
        return [self._outcome(payload) for payload in payloads]

    def _outcome(self, payload: Any) -> HandlerOutcome:
        if payload in self.unbegun:
            self.unbegun.remove(payload)
            return HandlerOutcome()
        if payload in self.deadly:
            return HandlerOutcome(reply_failed(HandlerFailed(how_it_ended(3))))
        return HandlerOutcome(reply_done(f"did {payload}"))

    def interrupt(self, tag: str) -> None:
        if self.deaf:
            self.deaf -= 1
            return
        self.interrupted.append(tag)
        self.gate.set()

    def ping(self) -> None:
        if self.gone is not None:
            raise self.gone

    def check(self) -> None:
        self.ping()


class Stage:
    """A runner, and jobs for it."""

    def __init__(self, jobs_a_batch: int, **options: Any) -> None:
        self.cluster = FakeCluster()
        self.size = BatchSize(jobs_a_batch, jobs_a_batch)
        self.runner = SparkRunner(self.cluster, self.size, "r", **options)
        self.gone = 0
        self.runner.on_gone = self._count
        self.handler = bind("mail", lambda payload: payload)

    def _count(self) -> None:
        self.gone += 1

    def start(self, payload: Any, **fields: Any) -> asyncio.Task[Any]:
        context = Context(claimed_job(payload, id=f"job-{payload}", **fields))
        running = self.runner.run(self.handler, context, lambda: None)
        return asyncio.get_running_loop().create_task(running)

    async def all(self, payloads: Sequence[Any]) -> list[Any]:
        tasks = [self.start(payload) for payload in payloads]
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*tasks, return_exceptions=True)


async def test_jobs_are_sent_together_and_each_gets_its_own_outcome() -> None:
    stage = Stage(4)
    assert await stage.all(range(10)) == [f"did {n}" for n in range(10)]
    assert sorted(stage.cluster.batches) == [
        ("shared", [0, 1, 2, 3]),
        ("shared", [4, 5, 6, 7]),
        ("shared", [8, 9]),
    ]
    await stage.runner.close()


async def test_jobs_are_collected_while_the_maximum_of_batches_is_running() -> None:
    stage = Stage(5, batches=2)
    stage.cluster.gate.clear()
    tasks = [stage.start(0)]
    await until(lambda: len(stage.cluster.batches) == 1)
    tasks.append(stage.start(1))
    await until(lambda: len(stage.cluster.batches) == 2)
    for payload in (2, 3, 4):
        tasks.append(stage.start(payload))
        await asyncio.sleep(0.01)
    assert len(stage.cluster.batches) == 2
    stage.cluster.gate.set()
    assert await asyncio.gather(*tasks) == [f"did {n}" for n in range(5)]
    assert stage.cluster.batches[2] == ("shared", [2, 3, 4])
    await stage.runner.close()


async def test_a_job_that_ends_its_process_is_found_and_the_others_are_done() -> None:
    stage = Stage(8)
    stage.cluster.deadly = {3}
    found = await stage.all(range(6))
    assert [n for n, end in enumerate(found) if isinstance(end, HandlerFailed)] == [3]
    assert str(found[3]) == "the process that ran the handler ended with exit code 3"
    assert found[:3] + found[4:] == [f"did {n}" for n in (0, 1, 2, 4, 5)]
    assert [isolation for isolation, _ in stage.cluster.batches] == ["shared", "isolated"]
    await stage.runner.close()


async def test_a_job_that_takes_the_executor_with_it_is_found_by_halves() -> None:
    stage = Stage(8)
    stage.cluster.devastating = {5}
    found = await stage.all(range(8))
    assert [n for n, end in enumerate(found) if isinstance(end, HandlerFailed)] == [5]
    assert "ended together with its Spark executor: python worker exited" in str(found[5])
    assert stage.gone == 0
    assert ("isolated", [5]) in stage.cluster.batches
    await stage.runner.close()


async def test_a_job_that_has_ended_its_process_before_is_kept_apart_from_others() -> None:
    stage = Stage(8)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    blamed = Failure(at, 1, "failed", how_it_ended(-11), "w")
    other = Failure(at, 1, "failed", "ValueError: no", "w")
    tasks = [
        stage.start(1),
        stage.start(2, errors=(blamed,)),
        stage.start(3, errors=(blamed, other)),
    ]
    assert await asyncio.gather(*tasks) == ["did 1", "did 2", "did 3"]
    assert sorted(stage.cluster.batches) == [
        ("isolated", [2]),
        ("shared", [1]),
        ("shared", [3]),
    ]
    await stage.runner.close()


async def test_jobs_that_were_not_started_are_sent_first() -> None:
    stage = Stage(3, batches=1)
    stage.cluster.unbegun = {1, 2}
    assert await stage.all(range(5)) == [f"did {n}" for n in range(5)]
    assert [payloads for _, payloads in stage.cluster.batches] == [[0, 1, 2], [1, 2, 3], [4]]
    await stage.runner.close()


@pytest.mark.parametrize("deaf", [0, 1])
async def test_a_batch_is_cancelled_if_all_its_jobs_are(deaf: int) -> None:
    stage = Stage(3)
    stage.cluster.deaf = deaf
    stage.cluster.gate.clear()
    tasks = [stage.start(n) for n in range(3)]
    await until(lambda: len(stage.cluster.batches) == 1)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.sleep(0.01)
    assert stage.cluster.interrupted == []
    tasks[2].cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(tasks)
    assert stage.cluster.interrupted == ["r-1"]
    assert all(task.cancelled() for task in tasks)
    assert (stage.gone, len(stage.cluster.batches)) == (0, 1)
    await stage.runner.close()


async def test_the_outcome_of_a_job_that_ends_after_its_cancellation_is_kept() -> None:
    stage = Stage(2)
    stage.cluster.gate.clear()
    tasks = [stage.start(n) for n in range(2)]
    await until(lambda: len(stage.cluster.batches) == 1)
    tasks[0].cancel()
    await asyncio.sleep(0.01)
    stage.cluster.gate.set()
    assert await asyncio.gather(*tasks) == ["did 0", "did 1"]
    await stage.runner.close()


async def test_a_job_that_is_cancelled_while_it_waits_is_not_sent() -> None:
    stage = Stage(1, batches=1)
    stage.cluster.gate.clear()
    first, second = stage.start(0), stage.start(1)
    await until(lambda: len(stage.cluster.batches) == 1)
    second.cancel()
    await asyncio.wait([second], timeout=PATIENCE_S)
    assert second.cancelled()
    stage.cluster.gate.set()
    assert await first == "did 0"
    assert len(stage.cluster.batches) == 1
    await stage.runner.close()


@pytest.mark.parametrize("way", ["gone", "refusal"])
async def test_if_spark_is_gone_no_job_has_failed(way: str) -> None:
    stage = Stage(2)
    error = UnavailableError("gone") if way == "gone" else InvalidRequestError("no such module")
    setattr(stage.cluster, way, error)
    found = await stage.all(range(4))
    assert all(isinstance(end, asyncio.CancelledError) for end in found)
    assert stage.runner.trouble is error
    assert stage.gone == 1
    await stage.runner.close()


async def test_the_loss_of_an_idle_spark_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_runner, "_PING_S", 0.01)
    stage = Stage(2)
    await asyncio.sleep(0.1)
    assert (stage.runner.trouble, stage.gone) == (None, 0)
    stage.cluster.gone = UnavailableError("gone")
    await until(lambda: stage.gone == 1)
    assert stage.runner.trouble is stage.cluster.gone
    await stage.runner.close()


async def test_closing_releases_running_and_waiting_jobs() -> None:
    stage = Stage(1, batches=1)
    stage.cluster.gate.clear()
    tasks = [stage.start(n) for n in range(3)]
    await until(lambda: len(stage.cluster.batches) == 1)
    async with asyncio.timeout(PATIENCE_S):
        await stage.runner.close()
        await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert len(stage.cluster.batches) == 1
    assert not stage.runner._running
    assert not stage.runner._tasks


async def test_the_engine_is_notified_when_more_jobs_may_be_held() -> None:
    stage = Stage(2)
    stage.runner._size = BatchSize(2, 100)
    sizes: list[int] = []
    stage.runner.on_size = sizes.append
    await stage.all(range(2))
    await stage.all(range(64))
    await stage.all(range(100))
    assert sizes == [192, 300]  # Two batches under way, and one that waits.
    await stage.runner.close()


def test_batches_grow_while_they_are_short_and_shrink_when_they_are_long() -> None:
    size = BatchSize(20, 200)
    size.note(20, 0.1)
    assert size.jobs == 100
    size.note(99, 0.1)  # It was not full, and says nothing.
    assert size.jobs == 100
    for _ in range(5):
        size.note(size.jobs, 0.1)
    assert size.jobs == 200
    size.note(200, 1.0)
    assert size.jobs == 200
    size.note(10, 2.1)
    assert size.jobs == 100
    for _ in range(5):
        size.note(1, 60.0)
    assert size.jobs == 20
    assert BatchSize(20, 5).jobs == 20


async def test_it_can_be_closed_while_it_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_runner, "_PING_S", 0.01)
    stage, pinged, answer = Stage(1), threading.Event(), threading.Event()

    def ping() -> None:
        pinged.set()
        assert answer.wait(PATIENCE_S)

    stage.cluster.ping = ping  # type: ignore[method-assign]
    await until(pinged.is_set)
    closing = asyncio.create_task(stage.runner.close())
    await asyncio.sleep(0.02)
    answer.set()
    async with asyncio.timeout(PATIENCE_S):
        await closing


def test_overhead_of_spark_makes_batches_larger() -> None:
    size = BatchSize(20)
    size.note(20, took_s=3.0, busy_s=0.7)
    assert size.jobs == 40
    size.note(40, took_s=3.0, busy_s=1.2)  # Handlers are busy for a second, as they should.
    assert size.jobs == 40
    size.note(40, took_s=9.0, busy_s=2.1)
    assert size.jobs == 20
    size.note(20, took_s=0.3, busy_s=0.01)
    assert size.jobs == 640


def test_the_next_batch_is_as_small_as_what_was_done_of_one_that_took_too_long() -> None:
    size = BatchSize(20)
    size.note(20, took_s=0.3, busy_s=0.0)
    assert size.jobs == 640
    size.note(640, took_s=2.5, busy_s=2.3, ended=50)
    assert size.jobs == 50


async def test_a_batch_waits_for_its_turn_only_if_handlers_are_fast() -> None:
    stage = Stage(4)
    assert stage.runner.slots == 8
    sizes: list[int] = []
    stage.runner.on_size = sizes.append
    await stage.all(range(2))
    assert stage.runner.slots == 12
    assert sizes == [12]
    stage.size.note(4, took_s=5.0)
    assert stage.runner.slots == 8
    await stage.runner.close()


async def test_an_internal_error_in_a_batch_reaches_its_jobs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(2)
    stage.cluster.submit = lambda *_: []  # type: ignore[method-assign]  # no outcome for any job
    async with asyncio.timeout(PATIENCE_S):
        found = await stage.all(range(2))
    assert [type(end) for end in found] == [ValueError, ValueError]
    assert any(record.exc_info for record in caplog.records)
    await stage.runner.close()

"""A worker on Spark, without Spark: its engine runs what the cluster makes of its jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

import bucketq
from bucketq import Backoff, InvalidRequestError, JobSpec, UnavailableError, Worker
from bucketq.spark.handlers.batch_runner import BatchFailed
from bucketq.spark.handlers.executor_task import HandlerOutcome, Isolation, TaskSettings, run_jobs
from bucketq.spark.handlers.pickled_handlers import pickle_handlers
from bucketq.spark.handlers.spark_worker import SparkWorker
from bucketq.worker.handlers import bind

SESSION = cast("Any", SimpleNamespace(version="4.3.0", sparkContext=SimpleNamespace(master="yarn")))


class NearCluster:
    """A cluster in this process."""

    def __init__(self, settings: TaskSettings) -> None:
        self._orders = settings
        self.sizes: list[int] = []
        self.is_gone = False

    def submit(
        self, bodies: Sequence[bytes], isolation: Isolation, tag: str
    ) -> list[HandlerOutcome]:
        del isolation, tag
        self.sizes.append(len(bodies))
        if self.is_gone:
            raise BatchFailed("the context was stopped")
        return run_jobs(self._orders, bodies)

    def interrupt(self, tag: str) -> None:
        raise AssertionError(tag)

    def check(self) -> None:
        if self.is_gone:
            raise UnavailableError("Spark runs nothing any more")


class NearWorker(SparkWorker):
    """A worker on such a cluster, of two parts."""

    near: NearCluster
    is_gone = False

    def _open(self, handlers: Any) -> Any:
        self.near = NearCluster(TaskSettings(pickle_handlers(handlers), self.concurrency, 2.0))
        self.near.is_gone = self.is_gone
        return self.near, 2


def double(number: int) -> int:
    return 2 * number


def fail(number: int) -> None:
    message = f"no luck with {number}"
    raise ValueError(message)


async def push(url: str, kind: str, count: int) -> None:
    async with bucketq.connect(url) as queue:
        await queue.push_many(
            [JobSpec(kind=kind, payload=n, id=f"{kind}{n}") for n in range(count)]
        )


async def test_a_burst_does_all_jobs_in_batches_of_what_runs_at_once() -> None:
    url = "memory://spark-burst"
    async with bucketq.connect(url) as queue:
        await push(url, "double", 200)
        worker = NearWorker(SESSION, {"double": double})
        worker.configure(url, concurrency=3)
        await worker.run(burst=True)
        assert worker.counters.ends == {"done": 200}
        assert (await queue.get("double7")).result == 14
    assert worker.near.sizes[:2] == [6, 6]
    assert sum(worker.near.sizes) == 200
    assert max(worker.near.sizes) > 12  # They were short, so more are claimed and sent at once.
    assert worker.slots > 12


async def test_the_handlers_and_options_of_a_worker_are_used() -> None:
    url = "memory://spark-worker"
    worker = Worker(url, concurrency=7, drain_s=3.0, worker="mine")
    worker.handler("fail", max_attempts=2, backoff=Backoff(base_s=0.0))(fail)
    async with bucketq.connect(url) as queue:
        await push(url, "fail", 1)
        near = NearWorker(SESSION, worker)
        assert (near.concurrency, near.drain_s, near.name) == (7, 3.0, "mine")
        async with asyncio.timeout(30):
            while near.counters.count("dead") == 0:
                await near.run(burst=True)
        job = await queue.get("fail0")
    assert (job.status, job.failures, job.errors[-1].worker) == ("dead", 2, "mine")
    assert job.errors[-1].error.startswith("ValueError: no luck with 0")


async def test_batch_jobs_limits_how_many_jobs_are_sent_at_once() -> None:
    url = "memory://spark-most"
    async with bucketq.connect(url):
        await push(url, "double", 20)
        worker = NearWorker(SESSION, {"double": bind("double", double)}, batch_jobs=4)
        worker.configure(url)
        await worker.run(burst=True)
    assert max(worker.near.sizes) == 4


async def test_if_spark_goes_away_jobs_are_released_and_the_run_ends() -> None:
    url = "memory://spark-gone"
    async with bucketq.connect(url) as queue:
        await push(url, "double", 3)
        worker = NearWorker(SESSION, {"double": double})
        worker.is_gone = True
        worker.configure(url)
        with pytest.raises(UnavailableError, match="Spark runs nothing any more"):
            await worker.run(burst=True)
        assert worker.counters.ends == {"released": 3}
        job = await queue.get("double0")
        assert (job.status, job.failures, job.lost_leases) == ("queued", 0, 0)


def test_invalid_arguments_are_rejected_before_a_claim() -> None:
    with pytest.raises(InvalidRequestError, match="takes a SparkSession, got str"):
        SparkWorker(cast("Any", "local[2]"), {"x": double})
    with pytest.raises(InvalidRequestError, match="batch_jobs"):
        SparkWorker(SESSION, {"x": double}, batch_jobs=0)


def test_spark_in_local_mode_runs_handlers_with_this_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    config = SimpleNamespace(contains=lambda _: False)
    context = SimpleNamespace(master="local[2]", pythonExec="python3", getConf=lambda: config)
    SparkWorker(cast("Any", SimpleNamespace(version="4.3.0", sparkContext=context)), {"x": double})
    assert context.pythonExec == sys.executable

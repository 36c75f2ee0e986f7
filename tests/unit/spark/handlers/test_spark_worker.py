"""A worker on Spark, without Spark: its engine runs what the cluster makes of its jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import bucketq
from bucketq import Backoff, InvalidRequestError, JobSpec, Progress, UnavailableError, Worker
from bucketq.model.records import JobRecord
from bucketq.spark.handlers.batch_runner import BatchFailed
from bucketq.spark.handlers.executor_task import HandlerOutcome, Isolation, TaskSettings, run_jobs
from bucketq.spark.handlers.pickled_handlers import pickle_handlers
from bucketq.spark.handlers.progress_datagrams import open_receiver
from bucketq.spark.handlers.spark_worker import SparkWorker
from bucketq.worker.context import Context
from bucketq.worker.handlers import bind
from tests.unit.worker import process_handlers
from tests.unit.worker.engine_harness import claimed_job

SESSION = cast("Any", SimpleNamespace(version="4.3.0", sparkContext=SimpleNamespace(master="yarn")))


class NearCluster:
    """A cluster in this process."""

    def __init__(self, settings: TaskSettings) -> None:
        self._orders = settings
        self.sizes: list[int] = []
        self.is_gone = False

    def submit(
        self, jobs: Sequence[JobRecord], isolation: Isolation, tag: str
    ) -> list[HandlerOutcome]:
        del isolation, tag
        self.sizes.append(len(jobs))
        if self.is_gone:
            raise BatchFailed("the context was stopped")
        return run_jobs(self._orders, jobs)

    def interrupt(self, tag: str) -> None:
        raise AssertionError(tag)

    def check(self) -> None:
        if self.is_gone:
            raise UnavailableError("Spark runs nothing any more")


class NearWorker(SparkWorker):
    """A worker on such a cluster, of two parts."""

    near: NearCluster
    is_gone = False
    isolation: Isolation = "shared"

    def _driver_hosts(self) -> tuple[str, str] | None:
        return ("127.0.0.1", "127.0.0.1")

    def _open(self, handlers: Any, report_to: Any) -> Any:
        pickled = pickle_handlers(handlers)
        self.near = NearCluster(
            TaskSettings(pickled, self.concurrency, 2.0, self.isolation, report_to)
        )
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


@pytest.mark.parametrize(
    ("run_in", "isolation"),
    [("loop", "shared"), ("thread", "shared"), ("process", "shared"), ("thread", "isolated")],
)
async def test_progress_is_seen_while_a_handler_runs(
    run_in: Any, isolation: Isolation, tmp_path: Path
) -> None:
    url, go = f"memory://spark-progress-{run_in}-{isolation}", tmp_path / "go"
    report = process_handlers.report_soon if run_in == "loop" else process_handlers.report
    last = Progress(1) if run_in == "loop" else Progress(1000, 1000, "rows")

    def note(progress: Progress) -> None:
        if progress == last:
            go.touch()

    async with bucketq.connect(url) as queue:
        await queue.configure(heartbeat_s=0.1)
        job_id = await queue.push("report", str(go))
        worker = NearWorker(SESSION, {"report": bind("report", report, run_in=run_in)})
        worker.isolation = isolation
        worker.configure(url)
        working = asyncio.create_task(worker.run(burst=True))
        await queue.wait(job_id, timeout_s=60, on_progress=note)
        await working
    assert go.exists()


async def test_a_report_that_is_forged_or_late_is_ignored() -> None:
    opened = await open_receiver("127.0.0.1", "localhost")
    assert opened is not None
    receiver, address = opened
    context = Context(claimed_job(id="a", attempt=2))
    held = {"a": context}
    receiver.context_of = held.get

    def receive(body: bytes, key: bytes = address.key) -> Progress | None:
        receiver.datagram_received(blake2b(body, key=key, digest_size=16).digest() + body, None)
        return context.reported

    assert receive(b'["a",2,{"done":1}]', b"guessed") is None
    assert receive(b'["a",1,{"done":1}]') is None
    assert receive(b'["b",2,{"done":1}]') is None
    assert receive(b'["a",2,{"done":1e99}]') is None
    assert receive(b"nonsense") is None
    receiver.datagram_received(b"", None)
    assert receive(b'["a",2,{"done":1}]') == Progress(1)
    assert receive(b'["a",2,{"done":2}]') == Progress(2)
    held.clear()
    assert receive(b'["a",2,{"done":3}]') == Progress(2)
    receiver.close()


async def test_a_driver_that_cannot_listen_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert await open_receiver("203.0.113.1", "driver") is None  # An address of no host.
    assert "progress of handlers on executors is not seen: 203.0.113.1" in caplog.text


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

"""``run``: the handlers of a ``Worker``, on Spark's executors.

::

    tally = bucketq.spark.run(spark, "s3://bucket/jobs/queue.json", worker, burst=True)

The driver speaks to the queue: it claims, keeps the leases, and settles what came back. The
executors get jobs as rows and have no address of the queue and no key to the bucket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from bucketq.client.connect import Options
from bucketq.clock import SystemClock, new_id
from bucketq.model import check
from bucketq.queue.base import Queue
from bucketq.spark.handlers.batch_runner import BatchSize, SparkRunner
from bucketq.spark.handlers.executor_task import Orders
from bucketq.spark.handlers.pickled_handlers import pack
from bucketq.spark.registration import check_session
from bucketq.worker.counters import WorkerCounters
from bucketq.worker.engine import Engine
from bucketq.worker.handlers import Handler, bind
from bucketq.worker.runner import Runner
from bucketq.worker.threads import ThreadRunner
from bucketq.worker.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bucketq.spark.handlers.spark_cluster import SparkCluster

_log = logging.getLogger("bucketq.worker")
_BUDGET_S = 2.0
"""How long a task begins jobs. Those that are left come back, so that the others are settled."""
_MOST_JOBS = 100_000


def run(
    spark: SparkSession,
    url: str | None,
    handlers: Worker | Mapping[str, Callable[..., Any] | Handler],
    *,
    concurrency: int | None = None,
    batch_jobs: int | None = None,
    burst: bool = False,
    kinds: Iterable[str] | None = None,
    drain: float | timedelta | None = None,
    **options: Unpack[Options],
) -> WorkerCounters:
    """Work on a queue with Spark until Ctrl-C or SIGTERM, and tell what was done.

    Call it in the main thread of the driver. The first signal lets handlers finish, a second one
    ends them and gives their jobs back.

    Args:
        spark: A session, of this process or over Spark Connect.
        url: The address of the queue; None: that of the worker, else BUCKETQ_URL.
        handlers: A ``Worker``, or functions by the kind of job that they work on.
        concurrency: How many handlers run at once in each Spark task.
        batch_jobs: How many jobs go to Spark at once at the most; left out, it follows the pace.
        burst: Whether to end when there is nothing to do.
        kinds: The kinds to work on; left out, all that have a handler.
        drain: How long it may take to end when it is stopped, in seconds.
        **options: Those of ``connect``, beside what the worker has.
    """
    worker = SparkWorker(spark, handlers, batch_jobs=batch_jobs)
    worker.configure(url, concurrency=concurrency, drain=drain, **options)
    worker.run_sync(burst=burst, kinds=kinds)
    return worker.counters


class SparkWorker(Worker):
    """A worker whose handlers run on Spark's executors."""

    def __init__(
        self,
        spark: SparkSession,
        handlers: Worker | Mapping[str, Callable[..., Any] | Handler],
        *,
        batch_jobs: int | None = None,
    ) -> None:
        """Take the handlers of a worker, with its queue and its options, or some by kind."""
        check_session(spark)
        if batch_jobs is not None:
            check.whole_number(batch_jobs, "batch_jobs", 1, _MOST_JOBS)
        if isinstance(handlers, Worker):
            super().__init__(
                handlers.url,
                concurrency=handlers.concurrency,
                drain=handlers.drain_s,
                **handlers.options,
            )
            found: Mapping[str, Any] = handlers.handlers
        else:
            super().__init__()
            found = handlers
        for kind, handler in found.items():
            self._handlers.add(handler if isinstance(handler, Handler) else bind(kind, handler))
        self._spark = spark
        self._batch_jobs = batch_jobs
        self._runner: SparkRunner | None = None

    @property
    def slots(self) -> int:
        """How many jobs it may hold: those of the batches that are under way."""
        return self.concurrency if self._runner is None else self._runner.slots

    async def run(self, *, burst: bool = False, kinds: Iterable[str] | None = None) -> None:
        """Work until ``stop`` is called, or in a ``burst`` until there is nothing to do.

        Raises ``UnavailableError`` where Spark goes away; what was held is given back before.
        """
        self._runner = None
        await super().run(burst=burst, kinds=kinds)
        if self._runner is not None and self._runner.trouble is not None:
            raise self._runner.trouble

    async def _make_runner(
        self, home: asyncio.AbstractEventLoop, handlers: Mapping[str, Handler]
    ) -> Runner:
        """Send the handlers to the executors, and see that they have arrived."""
        del home
        threads = ThreadRunner()
        try:
            cluster, parts = await threads.call(partial(self._open, handlers))
        finally:
            await threads.close()
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # It was stopped while Spark was starting.
        at_once = parts * self.concurrency
        most = self._batch_jobs
        size = BatchSize(at_once) if most is None else BatchSize(min(at_once, most), most)
        self._runner = SparkRunner(cluster, size, new_id(SystemClock()))
        return self._runner

    def _open(self, handlers: Mapping[str, Handler]) -> tuple[SparkCluster, int]:
        from bucketq.spark.handlers.spark_cluster import SparkCluster  # noqa: PLC0415 - pyspark is an extra

        orders = Orders(pack(handlers), self.concurrency, _BUDGET_S)
        cluster = SparkCluster(self._spark, orders)
        cluster.check()
        if cluster.may_run_twice:
            _log.warning(
                "spark.speculation is on, so a handler may run twice at once: switch it off"
            )
        return cluster, cluster.parts

    def _make_engine(
        self, queue: Queue[Any], handlers: Mapping[str, Handler], runner: Runner, *, burst: bool
    ) -> Engine:
        """Let the engine hold as many jobs as Spark's pace wants."""
        engine = super()._make_engine(queue, handlers, runner, burst=burst)
        if self._runner is not None:
            engine.fetch_none_ahead()
            self._runner.on_size = engine.resize
            self._runner.on_gone = partial(engine.stop, hurry=True)
        return engine

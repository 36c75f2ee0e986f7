"""``run``: runs the handlers of a ``Worker`` on Spark's executors.

::

    tally = bucketq.spark.run(spark, "s3://bucket/jobs/queue.json", worker, burst=True)

The driver talks to the queue: it claims jobs, renews their leases and settles them. The executors
get jobs as rows, and need no access to the queue, unless jobs have large payloads, which they fetch
by themselves.
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
from bucketq.process_memory import collecting_rarely, keep_large_blocks
from bucketq.queue.queue import Queue
from bucketq.spark.handlers.batch_runner import SparkRunner
from bucketq.spark.handlers.batch_size import BatchSize
from bucketq.spark.handlers.executor_task import TaskSettings
from bucketq.spark.handlers.pickled_handlers import pickle_handlers
from bucketq.spark.handlers.progress_datagrams import ReportAddress, open_receiver
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.session.compatibility import is_connect_session, prepare_session
from bucketq.worker.counters import WorkerCounters
from bucketq.worker.engine import Engine
from bucketq.worker.handlers import Handler, bind
from bucketq.worker.runners.runner import Runner
from bucketq.worker.runners.threads import ThreadRunner
from bucketq.worker.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bucketq.spark.handlers.spark_cluster import SparkCluster

_log = logging.getLogger("bucketq.worker")
_BUDGET_S = 2.0
"""How long a task starts jobs. It returns the rest, so that those that are done are settled."""
_BATCH_JOBS_MAX = 100_000
"""Far more than a driver should hold at once."""
_NEW_OBJECTS = 300_000
"""More than a driver makes for the jobs of three batches. With Python's own threshold, a fifth of
its time is spent on looking for garbage."""


def run(
    spark: SparkSession,
    url: str | None,
    handlers: Worker | Mapping[str, Callable[..., Any] | Handler],
    *,
    concurrency: int | None = None,
    batch_jobs: int | None = None,
    burst: bool = False,
    kinds: Iterable[str] | None = None,
    drain_s: float | timedelta | None = None,
    **options: Unpack[Options],
) -> WorkerCounters:
    """Work on a queue with Spark until Ctrl-C or SIGTERM; return how many jobs were done.

    Call it in the main thread of the driver. After the first signal handlers may finish; a second
    one cancels them and releases their jobs.

    Args:
        spark: A session, of this process or over Spark Connect.
        url: The address of the queue; None: that of the worker, or else BUCKETQ_URL.
        handlers: A ``Worker``, or functions by the kind of job that they handle.
        concurrency: How many handlers run at once in each Spark task.
        batch_jobs: The largest batch that is sent to Spark; by default it adapts to the speed.
        burst: Whether to return when there is nothing to do.
        kinds: The kinds to work on; by default all that have a handler.
        drain_s: How long handlers may take to finish after a signal, in seconds.
        **options: Those of ``connect``, in addition to those of the worker.
    """
    worker = SparkWorker(spark, handlers, batch_jobs=batch_jobs)
    worker.configure(url, concurrency=concurrency, drain_s=drain_s, **options)
    keep_large_blocks()
    with collecting_rarely(_NEW_OBJECTS):
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
        """Use the handlers, the queue and the options of a worker, or functions by kind."""
        prepare_session(spark)
        if batch_jobs is not None:
            check.whole_number(batch_jobs, "batch_jobs", 1, _BATCH_JOBS_MAX)
        if isinstance(handlers, Worker):
            super().__init__(
                handlers.url,
                concurrency=handlers.concurrency,
                drain_s=handlers.drain_s,
                **handlers.options,
            )
            self.lifespan = handlers.lifespan
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
        """How many jobs it may hold: those of the batches that are running."""
        return self.concurrency if self._runner is None else self._runner.slots

    async def run(self, *, burst: bool = False, kinds: Iterable[str] | None = None) -> None:
        """Work until ``stop`` is called, or in a ``burst`` until there is nothing to do.

        Raises ``UnavailableError`` if Spark goes away; claimed jobs are released before.
        """
        self._runner = None
        await super().run(burst=burst, kinds=kinds)
        if self._runner is not None and self._runner.trouble is not None:
            raise self._runner.trouble

    async def _make_runner(
        self, home: asyncio.AbstractEventLoop, handlers: Mapping[str, Handler]
    ) -> Runner:
        """Check that the executors can load the handlers, and make a runner for them."""
        del home
        threads = ThreadRunner()
        reports, report_to = None, None
        try:
            if (hosts := await threads.call(self._driver_hosts)) is not None and (
                opened := await open_receiver(*hosts)
            ) is not None:
                reports, report_to = opened
            cluster, parallelism = await threads.call(partial(self._open, handlers, report_to))
        except BaseException:
            if reports is not None:
                reports.close()
            raise
        finally:
            await threads.close()
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            if reports is not None:
                reports.close()
            raise asyncio.CancelledError  # It was stopped while Spark was starting.
        at_once = parallelism * self.concurrency
        most = self._batch_jobs
        size = BatchSize(at_once) if most is None else BatchSize(min(at_once, most), most)
        self._runner = SparkRunner(cluster, size, new_id(SystemClock()), reports=reports)
        return self._runner

    def _driver_hosts(self) -> tuple[str, str] | None:
        """Return where to listen for executors, and by which name they know this host.

        None over Spark Connect: they know the host of the server only.
        """
        if is_connect_session(self._spark):
            return None
        conf = self._spark.sparkContext.getConf()
        host = conf.get("spark.driver.host")
        return None if not host else (conf.get("spark.driver.bindAddress") or host, host)

    def _open(
        self, handlers: Mapping[str, Handler], report_to: ReportAddress | None
    ) -> tuple[SparkCluster, int]:
        from bucketq.spark.handlers.spark_cluster import SparkCluster  # noqa: PLC0415 - pyspark is an extra

        settings = TaskSettings(
            pickle_handlers(handlers),
            self.concurrency,
            _BUDGET_S,
            report_to=report_to,
            access=self._executor_access(),
        )
        cluster = SparkCluster(self._spark, settings)
        cluster.check()
        if cluster.may_run_twice:
            _log.warning(
                "spark.speculation is on, so a handler may run twice at once: set it to false"
            )
        return cluster, cluster.parallelism

    def _executor_access(self) -> QueueAccess | None:
        """Return how executors fetch large payloads; None: they cannot."""
        options = self.options
        if options.get("store") is not None or options.get("credential_provider") is not None:
            return None
        return QueueAccess(
            self._address(),
            options.get("timeout_s", QueueAccess.timeout_s),
            options.get("token"),
            options.get("tls"),
            options.get("insecure", False),
        ).for_executors()

    def _make_engine(
        self, queue: Queue[Any], handlers: Mapping[str, Handler], runner: Runner, *, burst: bool
    ) -> Engine:
        """Make an engine that holds as many jobs as the runner can send."""
        engine = super()._make_engine(queue, handlers, runner, burst=burst)
        if self._runner is not None:
            engine.leave_to_runner()
            self._runner.on_size = engine.resize
            self._runner.on_gone = partial(engine.stop, hurry=True)
        return engine

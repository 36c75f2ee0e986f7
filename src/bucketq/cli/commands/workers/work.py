"""``bucketq work``: run a worker that the user's module defines."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bucketq.cli.broker_security import server_tls
from bucketq.cli.command import ADDRESS_VARIABLE, DEFAULT_TIMEOUT_S
from bucketq.cli.metrics_options import Metrics, MetricsListener, metrics_listener
from bucketq.cli.parameters import argument, option
from bucketq.cli.parsing import check_timeout, parse_duration
from bucketq.cli.reloader import Reloader, ended_with_parent
from bucketq.cli.terminal.log import Format, LineHandler, form_of, level_of, log_to
from bucketq.cli.terminal.output import Output, counted
from bucketq.cli.terminal.worker_status import WorkerStatusLine
from bucketq.cli.worker_import import find_worker, parse_target, source_folder
from bucketq.errors import InvalidRequestError
from bucketq.worker.forced_exit import ForcedExit

if TYPE_CHECKING:
    from bucketq.worker.counters import WorkerCounters
    from bucketq.worker.worker import Worker

_log = logging.getLogger("bucketq.worker")
# How long to wait for the queue before logging that it does not answer; a healthy one takes less.
_NOTE_S = 3.0
# The same on Spark, where executors may have to be started first.
_SPARK_NOTE_S = 60.0


Where = Annotated[
    str,
    argument(
        "MODULE:WORKER",
        "The worker: tasks:worker, shop.tasks:worker or shop/tasks.py:worker; without a "
        "name, the one called worker, or the only one.",
    ),
]
Address = Annotated[str, option("--url URL", "Address of the queue; overrides that of the worker.")]
Concurrency = Annotated[int | None, option("--concurrency -c N", "How many handlers run at once.")]
Kinds = Annotated[str, option("--kinds -k A,B", "Only jobs of these kinds.")]
Burst = Annotated[bool, option("--burst", "Exit when no job is available.")]
Drain = Annotated[str, option("--drain DURATION", "Time limit for a graceful shutdown.")]
Name = Annotated[str, option("--name NAME", "Name of the worker.")]
Reload = Annotated[bool, option("--reload", "Restart when the source changes.")]
Spark = Annotated[
    str,
    option(
        "--spark MASTER",
        "Run handlers on Spark: local[4], spark://host:7077, yarn, or sc://host for Connect.",
    ),
]
BatchJobs = Annotated[
    int | None, option("--batch-jobs N", "With --spark: maximum number of jobs in a batch.")
]

TlsCert = Annotated[Path | None, option("--tls-cert FILE", "Certificate of --metrics (PEM).")]
TlsKey = Annotated[Path | None, option("--tls-key FILE", "Private key of the certificate.")]
TlsClientCa = Annotated[
    Path | None,
    option("--tls-client-ca FILE", "Serve metrics only to clients that one of these has signed."),
]
Insecure = Annotated[
    bool, option("--insecure", "Serve metrics on other interfaces without TLS or token.")
]


def run(  # noqa: PLR0913 - each is an option that its user names
    out: Output,
    *,
    target: Where,
    url: Address = "",
    concurrency: Concurrency = None,
    kinds: Kinds = "",
    burst: Burst = False,
    drain: Drain = "",
    name: Name = "",
    reload: Reload = False,
    spark: Spark = "",
    batch_jobs: BatchJobs = None,
    metrics: Metrics = "",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Insecure = False,
) -> int | None:
    """Run a worker: claim jobs and call their handlers.

    On Ctrl-C or SIGTERM it claims no more jobs and lets handlers finish. A second one stops the
    handlers and releases their jobs, a third kills the process. The queue is that of --url, or of
    the worker, or of BUCKETQ_URL. Logs name jobs but never include payloads; the tracebacks that
    --debug adds may quote them. With --spark the handlers run on executors, which need the module
    and bucketq, but not the queue; --concurrency then applies to each task. Beyond loopback,
    clients of --metrics must show a certificate (--tls-client-ca), or the token in
    BUCKETQ_METRICS_TOKEN.

    Examples:
        bucketq work tasks:worker
        bucketq work shop.tasks:worker --url s3://bucket/jobs/queue.json --concurrency 50
        bucketq work tasks.py --kinds email,report --burst
        bucketq work tasks:worker --reload
        bucketq work tasks:worker --drain 2m --name mailer-1 --log-format json
        bucketq work tasks:worker --spark "local[4]"
    """
    form = form_of(out)
    wanted = tuple(kind.strip() for kind in kinds.split(",")) if kinds else None
    tls = server_tls(tls_cert, tls_key, tls_client_ca) if metrics else None
    measured_at = metrics_listener(metrics, tls, insecure=insecure)
    drain_s = parse_duration(drain, "--drain") if drain else None
    check_timeout(out.timeout_s)
    found = parse_target(target)
    if reload:
        words = [word for word in sys.argv[1:] if word != "--reload"]
        command = [sys.executable, "-m", "bucketq.cli", *words]
        return asyncio.run(Reloader(command, source_folder(found), quiet=out.quiet).run())
    if batch_jobs is not None and not spark:
        raise InvalidRequestError("--batch-jobs needs --spark")
    with WorkerStatusLine(is_wanted=not out.quiet and form == "text") as line:
        worker = find_worker(found)
        worker.configure(url, concurrency=concurrency, drain_s=drain_s)
        _configure(worker, name, out.timeout_s)
        lines = LineHandler(form, line.say, tracebacks=out.debug)
        lines.worker = worker.name
        log_to(lines, level=level_of(out))
        if spark:
            with (
                _on_spark(spark, worker, batch_jobs, is_loud=out.debug) as worker,
                _measured(worker, measured_at),
            ):
                asyncio.run(_work(worker, line, wanted, burst=burst, note_s=_SPARK_NOTE_S))
        else:
            with _measured(worker, measured_at):
                asyncio.run(_work(worker, line, wanted, burst=burst))
    _sum_up(worker, wanted or tuple(worker.handlers), out, form)
    return None


@contextmanager
def _measured(worker: Worker, listener: MetricsListener | None) -> Iterator[None]:
    """Serve the metrics of a worker, if wanted."""
    if listener is None:
        yield
        return
    from bucketq.metrics.http_endpoint import HttpEndpoint
    from bucketq.metrics.process_registry import new_registry
    from bucketq.metrics.worker_metrics import WorkerMetrics

    registry = new_registry()
    WorkerMetrics(registry, worker)
    endpoint = HttpEndpoint(registry, is_ready=lambda: worker.is_ready, token=listener.token)
    with listener.in_thread(endpoint):
        yield


@contextmanager
def _on_spark(
    master: str, worker: Worker, batch_jobs: int | None, *, is_loud: bool
) -> Iterator[Worker]:
    """Start Spark, and run the handlers of a worker on it."""
    from bucketq.spark.handlers.spark_worker import SparkWorker
    from bucketq.spark.session.command_session import command_session, require_spark

    require_spark(master)
    _log.info("starting Spark: %s", master)
    with command_session(master, "work", is_loud=is_loud) as spark:
        yield SparkWorker(spark, worker, batch_jobs=batch_jobs)


def _configure(worker: Worker, name: str, timeout_s: float) -> None:
    """Set the options of the command that ``connect`` has, too."""
    if not worker.url and not os.environ.get(ADDRESS_VARIABLE):
        raise InvalidRequestError(
            "the worker has no queue: add --url, pass an address to bucketq.Worker, or set "
            f"{ADDRESS_VARIABLE}"
        )
    if name:
        worker.configure(worker=name)
    # The default must not override the timeout that the worker was made with.
    if timeout_s != DEFAULT_TIMEOUT_S:
        worker.configure(timeout_s=timeout_s)


async def _work(
    worker: Worker,
    line: WorkerStatusLine,
    kinds: tuple[str, ...] | None,
    *,
    burst: bool,
    note_s: float = _NOTE_S,
) -> None:
    loop = asyncio.get_running_loop()
    background = [
        loop.create_task(line.follow(worker, kinds or tuple(worker.handlers))),
        loop.create_task(_warn_if_not_ready(worker, note_s)),
    ]

    def end() -> None:
        _log.warning("the process that watched the source is gone; stopping")
        worker.stop()

    try:
        # Never cancelled: the process ends with this command.
        with worker.stopped_by_signals(ForcedExit()), ended_with_parent(end):
            await worker.run(burst=burst, kinds=kinds)
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)


async def _warn_if_not_ready(worker: Worker, note_s: float) -> None:
    """Log that the queue does not answer yet."""
    await asyncio.sleep(note_s)
    if not worker.is_ready:
        url = worker.url or os.environ.get(ADDRESS_VARIABLE)
        _log.warning("%s does not answer yet; retrying", url)


def _sum_up(worker: Worker, kinds: tuple[str, ...], out: Output, form: Format) -> None:
    """Print what was done, and after a burst what is left."""
    counters = worker.counters
    facts: dict[str, object] = {str(end): count for end, count in counters.ends.items()}
    queued = _queued(counters, kinds)
    if queued is not None:
        facts["queued"] = queued
    if form == "json":
        _log.info("ended", extra={"bucketq": {"event": "ended", **facts}})
    if form == "text" or out.json:
        out.done(_summary(counters, kinds, queued), facts)


def _queued(counters: WorkerCounters, kinds: tuple[str, ...]) -> int | None:
    """How many jobs of these kinds were still queued after a burst; None if unknown."""
    if counters.left is None:
        return None
    return sum(counters.left.counts.get(kind, {}).get("queued", 0) for kind in kinds)


def _summary(counters: WorkerCounters, kinds: tuple[str, ...], queued: int | None) -> str:
    attempts = counted(sum(counters.ends.values()), "attempt")
    ends = ", ".join(f"{count:,} {end}" for end, count in counters.ends.items())
    text = f"{attempts}: {ends}" if ends else "no jobs were run"
    if not queued or counters.left is None:
        return text
    is_paused = counters.left.paused or not set(kinds).isdisjoint(counters.left.paused_kinds)
    why = "for a later time, or because of a pause" if is_paused else "for a later time"
    return f"{text}; {counted(queued, 'job waits', 'jobs wait')} {why}"

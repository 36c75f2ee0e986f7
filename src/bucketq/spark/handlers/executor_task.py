"""What runs on the executors: some jobs, several at once, each alone with its misfortune.

One Spark task runs the jobs of one part of a batch, on an event loop of its own, with the runners
that a worker has: async handlers on the loop, plain ones in threads, others in processes. What came
of each job goes back as a ``Reply``; an exception of a handler is never one of the task. The queue
is not spoken to from here, and no address of it is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from bucketq.model.job import JobRecord
from bucketq.queue.job import Job
from bucketq.spark.handlers.isolated_process import run_apart
from bucketq.spark.handlers.pickled_handlers import NotDelivered, Shipment, unpack
from bucketq.worker.context import Context
from bucketq.worker.handlers import Handler, Place
from bucketq.worker.reply import Reply, reply_done, reply_failed
from bucketq.worker.runner import Runner, Runners, TaskRunner
from bucketq.worker.threads import ThreadRunner

if TYPE_CHECKING:
    import pyarrow as pa

_LAST_WORDS_S = 1.0
"""How long a handler that took too long is waited for when it was told to stop."""

Care = Literal["together", "apart"]
"""Apart: each job in a process of its own, to see which one ends its process."""


class Outcome(Struct, frozen=True, omit_defaults=True):
    """What became of a job on an executor."""

    reply: Reply | None = None
    """None: it was not begun."""
    undelivered: str = ""
    """Why the executor has no handlers, where it has none."""
    ended_s: float = 0.0
    """How long after the beginning of its task it was over."""


class Orders(Struct, frozen=True):
    """How a task is to run its jobs."""

    shipment: Shipment
    concurrency: int
    budget_s: float
    """After so long no further job is begun: the others wait for the end of the task."""
    care: Care = "together"


def run_part(orders: Orders, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the jobs of one part: the function that Spark calls, with rows of ``n`` and ``body``."""
    import pyarrow as pa  # noqa: PLC0415 - it is an extra

    numbers: list[int] = []
    bodies: list[bytes] = []
    for batch in batches:
        numbers += batch.column(0).to_pylist()
        bodies += batch.column(1).to_pylist()
    outcomes = run_bodies(orders, bodies)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.int32()),
            pa.array([msgspec.json.encode(outcome) for outcome in outcomes], pa.binary()),
        ],
        names=["n", "body"],
    )


def try_part(orders: Orders, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """See whether the handlers are here: one row in, and one out, as from ``run_part``."""
    import pyarrow as pa  # noqa: PLC0415 - it is an extra

    for batch in batches:
        try:
            unpack(orders.shipment)
            found = Outcome()
        except NotDelivered as error:
            found = Outcome(undelivered=str(error))
        bodies = [msgspec.json.encode(found)] * batch.num_rows
        yield pa.RecordBatch.from_arrays(
            [batch.column(0), pa.array(bodies, pa.binary())], names=["n", "body"]
        )


def run_bodies(orders: Orders, bodies: Sequence[bytes]) -> list[Outcome]:
    """Run jobs, given as the JSON of their records."""
    try:
        handlers = unpack(orders.shipment)
    except NotDelivered as error:
        return [Outcome(undelivered=str(error)) for _ in bodies]
    if not bodies:
        return []
    records = [msgspec.json.decode(body, type=JobRecord) for body in bodies]
    if orders.care == "apart":
        return [
            Outcome(run_apart(partial(_run_alone, handlers[record.kind], record)))
            for record in records
        ]
    return asyncio.run(_run_together(orders, handlers, records))


def _run_alone(handler: Handler, record: JobRecord) -> Reply:
    """Run one job in a process that is there for it alone."""

    async def main() -> Reply:
        runner = _runner({handler.kind: handler})
        try:
            return await _run_one(runner, handler, record)
        finally:
            await runner.close()

    return asyncio.run(main())


async def _run_together(
    orders: Orders, handlers: dict[str, Handler], records: Sequence[JobRecord]
) -> list[Outcome]:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    wanted = {record.kind: handlers[record.kind] for record in records}
    runner = _runner(wanted)
    outcomes = [Outcome()] * len(records)
    numbered = enumerate(records)

    async def work() -> None:
        """Run one job after the other, each slot what comes next."""
        for number, record in numbered:
            # The first ones are begun in any case, or a batch might never end.
            if number >= orders.concurrency and loop.time() - began_s >= orders.budget_s:
                return
            reply = await _run_one(runner, wanted[record.kind], record)
            outcomes[number] = Outcome(reply, ended_s=loop.time() - began_s)

    try:
        await asyncio.gather(*(work() for _ in records[: orders.concurrency]))
    finally:
        await runner.close()
    return outcomes


async def _run_one(runner: Runner, handler: Handler, record: JobRecord) -> Reply:
    """Run one handler, for as long as it may take."""
    loop = asyncio.get_running_loop()
    context = Context(Job[Any](record, Any))
    over = asyncio.Event()
    timers: list[asyncio.TimerHandle] = []
    is_late = False

    def stop() -> None:
        nonlocal is_late
        is_late = True
        context.cancelled = True
        task.cancel()
        timers.append(loop.call_later(_LAST_WORDS_S, over.set))

    def begun() -> None:
        if handler.timeout_s is not None:
            timers.append(loop.call_later(handler.timeout_s, stop))

    task = loop.create_task(_heard(runner.run(handler, context, begun)))
    task.add_done_callback(lambda _: over.set())
    await over.wait()
    for timer in timers:
        timer.cancel()
    reply = task.result() if task.done() and not task.cancelled() else None
    if is_late and (reply is None or reply.kind != "done"):
        text = f"it took longer than {handler.timeout_s:g} s, and was told to stop"
        return Reply("failed", text=text)
    return reply or Reply("failed", text="the handler cancelled itself")


async def _heard(running: Awaitable[Any]) -> Reply:
    """What came of a handler; it raises nothing but its cancellation."""
    try:
        result = await running
    except Exception as error:  # noqa: BLE001 - it fails its job, and not the others
        return reply_failed(error)
    return reply_done(result)


def _runner(handlers: dict[str, Handler]) -> Runners:
    runners: dict[Place, Runner] = {"loop": TaskRunner(), "thread": ThreadRunner()}
    if any(handler.place == "process" for handler in handlers.values()):
        from bucketq.worker.processes import ProcessRunner  # noqa: PLC0415 - few need it

        runners["process"] = ProcessRunner(handlers)
    return Runners(runners)

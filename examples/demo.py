"""See a queue work: in one process, on one local file, without an account.

A few thousand jobs are pushed and run by a worker with many handlers at once. Some fail and are
retried; one dies and is redriven. Afterwards everything is archived and counted.
Run it with ``make demo``, or ``python examples/demo.py DIRECTORY`` to choose where the file goes.

It exits with 0 if every job ended as it should, with 1 if not, and with 130 after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bucketq
from bucketq import Backoff, Job, JobSpec, Queue, Worker

BATCHES = 4
BATCH_JOBS = 500
SINGLE_PUSHES = 1000
SLOTS = 20
FLAKY_EVERY = 50
TIME_LIMIT_S = 120.0
QUICKLY = Backoff(base_s=0.05, max_s=0.2)


@dataclass(frozen=True)
class Number:
    """The payload of a job: a number to be squared."""

    n: int


@dataclass
class Tally:
    """What the handler did, to be compared with what the queue says in the end."""

    attempts: dict[int, int] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)
    failed_count: int = 0
    poison_is_repaired: bool = False


POISON = Number(-1)
TOTAL_JOBS = BATCHES * BATCH_JOBS + SINGLE_PUSHES + 1


async def push_all(queue: Queue[Number]) -> None:
    """Push in batches, then with many callers at once, and one job that will die."""
    with timed("pushed", BATCHES * BATCH_JOBS, f"jobs in {BATCHES} batches"):
        for batch in range(BATCHES):
            first = batch * BATCH_JOBS
            numbers = range(first, first + BATCH_JOBS)
            await queue.push_many(
                JobSpec(kind="square", payload=Number(n), backoff=QUICKLY) for n in numbers
            )
    with timed("pushed", SINGLE_PUSHES, "jobs, each by a separate caller"):
        first = BATCHES * BATCH_JOBS
        async with asyncio.TaskGroup() as callers:
            for n in range(first, first + SINGLE_PUSHES):
                callers.create_task(queue.push("square", Number(n), backoff=QUICKLY))
    await queue.push("square", POISON, backoff=QUICKLY, max_attempts=2, priority=-1)


def make_worker(url: str, tally: Tally) -> Worker:
    """Return a worker that squares. Some jobs fail at first; one fails until it is repaired."""
    worker = Worker(url, concurrency=SLOTS, mode="embedded")

    @worker.handler("square")
    async def square(number: Number, job: Job[Number]) -> int:
        n = number.n
        tally.attempts[n] = tally.attempts.get(n, 0) + 1
        is_flaky = n % FLAKY_EVERY == 0 and job.attempt == 1
        is_poison = number == POISON and not tally.poison_is_repaired
        if is_flaky or is_poison:
            tally.failed_count += 1
            message = f"cannot square {n} today"
            raise ValueError(message)
        tally.returned[n] = tally.returned.get(n, 0) + 1
        return n * n

    return worker


async def work_off(queue: Queue[Number], worker: Worker) -> None:
    """Run the worker until the queue has no more jobs, not even delayed ones."""
    while True:
        await worker.run(burst=True)
        if not (await queue.stats()).total("queued"):
            return
        await asyncio.sleep(QUICKLY.max_s / 2)  # Some wait for their next attempt.


async def redrive(queue: Queue[Number], worker: Worker, tally: Tally) -> None:
    """Show the dead job, repair its handler, and redrive it."""
    page = await queue.jobs(statuses="dead")
    for job in page.jobs:
        reason = job.errors[-1].error.splitlines()[0]
        print(f"dead      {job.id} after {job.attempt} attempts: {reason}")
    tally.poison_is_repaired = True
    count = await queue.redrive()
    print(f"redriven  {count} job, now that its handler is repaired")
    await work_off(queue, worker)


def discrepancies(tally: Tally, jobs: tuple[Job[Number], ...]) -> Iterator[str]:
    """Return what is wrong."""
    expected = {POISON.n, *range(TOTAL_JOBS - 1)}
    if len(jobs) != TOTAL_JOBS:
        yield f"{TOTAL_JOBS} jobs were pushed, the archive holds {len(jobs)}"
    if {job.payload.n for job in jobs} != expected:
        yield "the payloads in the archive are not those that were pushed"
    if tally.returned != dict.fromkeys(expected, 1):
        yield "some jobs were not squared, or more than once"
    for job in jobs:
        n = job.payload.n
        if job.status != "done" or job.outcome != "completed" or job.result != n * n:
            yield f"{job} has outcome {job.outcome} and result {job.result}"
        elif job.attempt < tally.attempts.get(n, 0):
            # Fewer is right: a busy worker releases jobs that it has claimed too early.
            yield f"{job} was handled {tally.attempts[n]} times"


async def archived(url: str) -> tuple[Job[Number], ...]:
    """Read what the queue has finished."""
    since = datetime.now(UTC) - timedelta(hours=1)
    async with bucketq.open_archive(url, payload_type=Number) as archive:
        return tuple([job async for job in archive.jobs(since)])


@contextmanager
def timed(verb: str, count: int, what: str) -> Iterator[None]:
    """Print how long something took, and the rate."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    yield
    took_s = loop.time() - begin
    print(f"{verb:9} {count:5,} {what} in {took_s:.2f} s, {count / took_s:,.0f}/s", flush=True)


def show(path: Path) -> None:
    """Print the beginning of the file, each line cut to the width of the terminal."""
    width = max(40, shutil.get_terminal_size((100, 24)).columns)
    lines = path.read_text("utf-8").splitlines()
    print(f"\n{path} begins:")
    for line in lines[:8]:
        print(line if len(line) <= width else f"{line[: width - 3]}...")
    print(f"({len(lines):,} lines in all; `tail -n 3` and `jq .settings` work on it as well)")


async def demo(path: Path) -> int:
    """Run all steps, count, and return the exit code."""
    tally = Tally()
    async with (
        asyncio.timeout(TIME_LIMIT_S),
        bucketq.connect(path.as_uri(), payload_type=Number, mode="embedded") as queue,
    ):
        print(f"queue     {path}")
        await push_all(queue)
        worker = make_worker(path.as_uri(), tally)
        with timed("completed", TOTAL_JOBS - 1, f"jobs in {SLOTS} slots of a worker"):
            await work_off(queue, worker)
        print(f"failed    {tally.failed_count:5,} attempts; their jobs were retried, one died")
        await redrive(queue, worker, tally)
        stats = await queue.stats()
        show(path)
        await queue.flush_archive()
        left = await queue.stats()
    jobs = await archived(path.as_uri())
    print(
        f"\ncounted   {len(jobs):,} of {TOTAL_JOBS:,} jobs in the archive, after {left.version:,} "
        f"commits; the file had {stats.bytes:,} bytes and has {left.bytes:,} now"
    )
    problems = list(discrepancies(tally, jobs))
    for problem in problems[:10]:
        print(f"WRONG: {problem}", file=sys.stderr)
    print(
        f"\n{f'{len(problems)} things are wrong' if problems else 'all jobs ended as they should'}"
    )
    return 1 if problems else 0


def main() -> int:
    """Start over with a fresh file."""
    here = Path(__file__).resolve().parents[1] / "build" / "demo"
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here
    folder.mkdir(parents=True, exist_ok=True)
    # Some jobs fail on purpose, and a worker warns of each.
    logging.getLogger("bucketq").setLevel(logging.ERROR)
    path = folder / "queue.json"
    path.unlink(missing_ok=True)
    shutil.rmtree(path.with_suffix("") / "archive", ignore_errors=True)
    try:
        return asyncio.run(demo(path))
    except KeyboardInterrupt:
        print(f"\nstopped; {path} holds everything that was acknowledged", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""Kill a broker under load, and count that nothing was lost or duplicated.

``make failover`` starts two brokers, kills the one that leads after 4 seconds with ``kill -9``,
and counts after 10 seconds. To kill brokers yourself, give the address of a queue:

In two terminals:  bucketq serve file:///tmp/jobs/queue.json
In a third:        python examples/failover.py file:///tmp/jobs/queue.json

The program pushes and completes jobs as fast as it can and prints a line each second: the leading
broker and what was acknowledged so far. After ``--seconds``, or at Ctrl-C, it completes the
remaining jobs and counts: every acknowledged push must be in the archive exactly once.

The exit code is 0 if nothing was lost or duplicated, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bucketq
from bucketq import Job, Queue, UnavailableError

PUSHERS = 16
WORKERS = 8
CLAIM_JOBS = 16
PAUSE_S = 0.005
DEMO_KILL_S = 4.0
DEMO_S = 10.0


@dataclass
class Tally:
    """What was acknowledged so far."""

    run: str
    pushed: dict[str, int] = field(default_factory=dict)
    """The ids of acknowledged jobs, and their numbers."""
    completed: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    lost_leases: int = 0
    longest_s: float = 0.0
    """The longest that a push took: about as long as the longest failover."""
    next_number: int = 0


async def push(queue: Queue[Any], tally: Tally, stopping: asyncio.Event) -> None:
    """Push one job after another; retry a push whose outcome is unknown under the same id."""
    loop = asyncio.get_running_loop()
    while not stopping.is_set():
        number, request = tally.next_number, None
        tally.next_number += 1
        began_s = loop.time()
        while True:
            try:
                payload = {"run": tally.run, "number": number}
                job = await queue.push("failover", payload, request=request)
            except UnavailableError as error:
                tally.retries += 1
                request = error.request
            else:
                tally.pushed[job] = number
                break
        tally.longest_s = max(tally.longest_s, loop.time() - began_s)
        await asyncio.sleep(PAUSE_S)


async def finish(queue: Queue[Any], jobs: list[Job[Any]]) -> list[bool]:
    """Complete jobs; return for each whether its lease was still held."""
    request = None
    while True:
        try:
            return await queue.complete_many(jobs, request=request)
        except UnavailableError as error:
            request = error.request


async def work(queue: Queue[Any], tally: Tally, pushing_is_over: asyncio.Event) -> None:
    """Claim and complete jobs until every pushed job is completed."""
    while True:
        jobs = await queue.claim("failover", limit=CLAIM_JOBS, wait_s=1.0)
        for job, is_done in zip(jobs, await finish(queue, jobs), strict=True):
            tally.completed[job.id] += is_done
            tally.lost_leases += not is_done
        is_over = pushing_is_over.is_set()
        if not jobs and is_over and tally.pushed.keys() <= (+tally.completed).keys():
            return


async def report(queue: Queue[Any], tally: Tally) -> None:
    """Print a line each second; during a failover the next line waits for the new leader."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        await asyncio.sleep(1)
        try:
            broker = (await queue.stats()).broker
        except UnavailableError:
            continue
        leader = f"epoch {broker.epoch} at {broker.address or 'nowhere'}" if broker else "no broker"
        print(
            f"{loop.time() - began_s:4.1f} s  {leader}: {len(tally.pushed):,} pushes acknowledged, "
            f"{tally.completed.total():,} jobs completed",
            flush=True,
        )


async def archived(url: str, run: str) -> Counter[int]:
    """Count how often each number of this run is in the archive."""
    since = datetime.now(UTC) - timedelta(days=1)
    async with bucketq.open_archive(url) as archive:
        jobs = [job async for job in archive.jobs(since) if job.kind == "failover"]
    return Counter(job.payload["number"] for job in jobs if job.payload["run"] == run)


async def main(url: str, seconds: float, brokers: list[subprocess.Popen[str]]) -> int:
    """Push and work until it is time to count; kill the first of the brokers on the way."""
    stopping, pushing_is_over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stopping.set)
    if seconds:
        loop.call_later(seconds, stopping.set)
    if brokers:
        loop.call_later(DEMO_KILL_S, kill, brokers[0])
    tally = Tally(run=datetime.now(UTC).isoformat())
    async with bucketq.connect(url, launch="never") as queue:
        reporting = loop.create_task(report(queue, tally))
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work(queue, tally, pushing_is_over))
            async with asyncio.TaskGroup() as pushers:
                for _ in range(PUSHERS):
                    pushers.create_task(push(queue, tally, stopping))
            pushing_is_over.set()
        reporting.cancel()
        await queue.flush_archive()
    found = await archived(url, tally.run)
    numbers = Counter(tally.pushed.values())
    lost = numbers - found
    duplicated = found - numbers
    print(
        f"\n{len(tally.pushed):,} pushes acknowledged, {found.total():,} jobs in the archive: "
        f"{lost.total()} lost, {duplicated.total()} duplicated\n"
        f"{tally.retries} retries by hand, {tally.lost_leases} leases lost, "
        f"longest push {tally.longest_s:.1f} s"
    )
    return 1 if lost or duplicated else 0


def kill(broker: subprocess.Popen[str]) -> None:
    """End a broker as ``kill -9`` does."""
    print(f"kill -9 {broker.pid}, the broker that leads", flush=True)
    broker.kill()


@contextmanager
def serving(url: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``bucketq serve`` until the end of the block; start when it has said where it listens."""
    command = [sys.executable, "-m", "bucketq.cli", "serve", url, "--json"]
    with (
        log.open("a", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as broker,
    ):
        try:
            assert broker.stdout
            broker.stdout.readline()
            yield broker
        finally:
            broker.kill()


async def until_led(url: str) -> None:
    """Wait until a broker leads the queue."""
    async with bucketq.connect(url, mode="remote") as queue:
        await queue.stats()


def demonstrate() -> int:
    """Start two brokers on a new queue, kill the one that leads, and count."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        url = (Path(folder) / "queue.json").as_uri()
        brokers = []
        for name in ("leader", "standby"):
            brokers.append(stack.enter_context(serving(url, Path(folder) / f"{name}.log")))
            asyncio.run(until_led(url))
            print(f"broker {brokers[-1].pid} serves the queue: {name}", flush=True)
        return asyncio.run(main(url, DEMO_S, brokers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill brokers under load, and lose nothing.")
    parser.add_argument("url", nargs="?", help="the queue; without it, two brokers are started")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this time")
    arguments = parser.parse_args()
    if arguments.url is None:
        sys.exit(demonstrate())
    sys.exit(asyncio.run(main(arguments.url, arguments.seconds, [])))

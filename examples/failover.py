"""Kill brokers under load and see that nothing is lost.

In two terminals:  bucketq serve file:///tmp/jobs/queue.json
In a third:        python examples/failover.py file:///tmp/jobs/queue.json

It pushes and works off jobs as fast as it can. Kill whichever broker you like, with -9 if you
like; start it again or do not. A line each second tells who leads and what was acknowledged. After
``--seconds``, or at Ctrl-C, it works off what is left and counts: every push that was acknowledged
must have been finished once, and be in the archive.

It exits with 0 if nothing was lost or doubled, and with 1 if something was.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import bucketq
from bucketq import Job, Queue, UnavailableError

PUSHERS = 16
WORKERS = 8
CLAIM_JOBS = 16
PAUSE_S = 0.005


@dataclass
class Tally:
    """What was acknowledged, and how it went."""

    run: str
    pushed: dict[str, int] = field(default_factory=dict)
    """The ids of acknowledged jobs, and their numbers."""
    completed: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    lost_leases: int = 0
    longest_s: float = 0.0
    """The longest that a push took: about as long as the longest failover."""
    next_number: int = 0


async def push(queue: Queue[Any], tally: Tally, stopping: asyncio.Event) -> None:
    """Push one job after another; what stays unknown is sent again to the effect of one."""
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
                tally.unknown += 1
                request = error.request
            else:
                tally.pushed[job] = number
                break
        tally.longest_s = max(tally.longest_s, loop.time() - began_s)
        await asyncio.sleep(PAUSE_S)


async def finish(queue: Queue[Any], jobs: list[Job[Any]]) -> list[bool]:
    """Complete jobs; tell of each whether its lease was still held."""
    request = None
    while True:
        try:
            return await queue.complete_many(jobs, request=request)
        except UnavailableError as error:
            request = error.request


async def work(queue: Queue[Any], tally: Tally, pushing: asyncio.Event) -> None:
    """Finish jobs until there are no more to come."""
    while True:
        jobs = await queue.claim("failover", limit=CLAIM_JOBS, wait_s=1.0)
        for job, is_done in zip(jobs, await finish(queue, jobs), strict=True):
            tally.completed[job.id] += is_done
            tally.lost_leases += not is_done
        if not jobs and pushing.is_set() and tally.pushed.keys() <= (+tally.completed).keys():
            return


async def tell(queue: Queue[Any], tally: Tally) -> None:
    """Say once a second how it goes."""
    while True:
        await asyncio.sleep(1)
        try:
            broker = (await queue.stats()).broker
        except UnavailableError:
            continue
        leader = f"epoch {broker.epoch} at {broker.address or 'nowhere'}" if broker else "no broker"
        print(
            f"{leader}: {len(tally.pushed):,} pushes acknowledged, "
            f"{tally.completed.total():,} jobs finished, longest wait {tally.longest_s:.1f} s",
            flush=True,
        )


async def archived(url: str, run: str) -> Counter[int]:
    """How often each number of this run is in the archive, doubles by id taken out."""
    since = datetime.now(UTC) - timedelta(days=1)
    async with bucketq.open_archive(url) as archive:
        jobs = [job async for job in archive.jobs(since) if job.kind == "failover"]
    return Counter(job.payload["number"] for job in jobs if job.payload["run"] == run)


async def main(url: str, seconds: float) -> int:
    """Push and work until it is time to count."""
    stopping, pushing_is_over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stopping.set)
    if seconds:
        loop.call_later(seconds, stopping.set)
    tally = Tally(run=datetime.now(UTC).isoformat())
    async with bucketq.connect(url, launch="never") as queue:
        telling = loop.create_task(tell(queue, tally))
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work(queue, tally, pushing_is_over))
            async with asyncio.TaskGroup() as pushers:
                for _ in range(PUSHERS):
                    pushers.create_task(push(queue, tally, stopping))
            pushing_is_over.set()
        telling.cancel()
        await queue.flush_archive()
    found = await archived(url, tally.run)
    numbers = Counter(tally.pushed.values())
    lost = numbers - found
    doubled = found - numbers
    print(
        f"\n{len(tally.pushed):,} pushes were acknowledged, {found.total():,} jobs are in the "
        f"archive: {lost.total()} lost, {doubled.total()} doubled\n"
        f"{tally.unknown} answers were late and asked for again, {tally.lost_leases} leases lost, "
        f"longest wait {tally.longest_s:.1f} s"
    )
    return 1 if lost or doubled else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill brokers under load, and lose nothing.")
    parser.add_argument("url", help="the queue, like file:///tmp/jobs/queue.json")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop by itself after so long")
    arguments = parser.parse_args()
    sys.exit(asyncio.run(main(arguments.url, arguments.seconds)))

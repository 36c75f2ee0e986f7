"""A worker process of ``worker.py``, or a client that claims and completes without any worker.

::

    worker_process.py work URL CONCURRENCY     runs `bucketq.Worker` with handlers that do nothing
    worker_process.py bare URL BATCH           claims and completes, BATCH jobs a call
    worker_process.py wait URL                 runs an idle worker, and reports when jobs begin

It imports what it needs, prints ``ready``, waits for a line on standard input, works until the
queue is empty (``wait``: until standard input ends), and prints its result as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import monotonic, process_time

import bucketq
from bucketq.client.connect import connect

ROUND = "worker"
"""The kind of the jobs."""


def work(url: str, concurrency: int) -> dict[str, object]:
    """Run a worker until the queue is empty."""
    worker = bucketq.Worker(url, concurrency=concurrency)

    @worker.handler(ROUND)
    async def do_nothing(payload: dict[str, str]) -> None:
        del payload

    worker.run_sync(burst=True)
    return {"jobs": worker.counters.count("done")}


async def bare(url: str, batch: int) -> dict[str, object]:
    """Claim and complete until the queue is empty."""
    done = 0
    async with connect(url) as queue:
        while jobs := await queue.claim(limit=batch):
            done += sum(await queue.complete_many(jobs))
    return {"jobs": done}


async def wait(url: str) -> dict[str, object]:
    """Run a worker until standard input ends; report how long each job took to begin."""
    worker = bucketq.Worker(url, concurrency=10)
    late_s: list[float] = []

    @worker.handler(ROUND)
    async def begin(pushed_s: float) -> None:
        late_s.append(monotonic() - pushed_s)

    working = asyncio.get_running_loop().create_task(worker.run())
    await asyncio.to_thread(sys.stdin.readline)
    worker.stop()
    await working
    return {"late_s": late_s}


async def warm_up(url: str) -> None:
    """Import what a connection needs, which takes longer than a thousand jobs."""
    async with connect(url) as queue:
        await queue.stats()


def main(what: str, url: str, *more: str) -> None:
    """Run one of them."""
    asyncio.run(warm_up(url))
    bucketq.Worker(url)
    print("ready", flush=True)
    if what != "wait":
        sys.stdin.readline()
    began, cpu = monotonic(), process_time()
    if what == "work":
        found = work(url, int(more[0]))
    elif what == "bare":
        found = asyncio.run(bare(url, int(more[0])))
    else:
        found = asyncio.run(wait(url))
    found |= {"began": began, "ended": monotonic(), "cpu_s": process_time() - cpu}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

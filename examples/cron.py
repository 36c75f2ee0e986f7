"""Push a job for each period of time, once, however many of these run.

    python examples/cron.py file:///tmp/jobs/queue.json report --every 60

A job is due at the beginning of each period, by UTC. Its key names the period, like
``report/2026-11-15T10:00``, so if two instances push it, it is pushed once. Instances store nothing
and can be killed at any moment. A new one begins with the current period; with ``--catch-up 1800``
it first pushes periods that may have been missed in the last 1,800 seconds.

The queue must remember keys for longer than that and than a period, or jobs would be pushed again.
It remembers them for an hour; to change that: ``bucketq config URL
key_retention_s=172800``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import bucketq
from bucketq import Queue, UnavailableError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MARGIN = timedelta(seconds=60)
"""How much the clocks of instances may differ."""


def period_of(when: datetime, every: timedelta) -> datetime:
    """Return the beginning of the period that contains a moment."""
    return EPOCH + (when - EPOCH) // every * every


def key_of(kind: str, period: datetime) -> str:
    """Return the key of a period's job, which is the same in all instances."""
    return f"{kind}/{period:%Y-%m-%dT%H:%M}" + (f":{period:%S}" if period.second else "")


async def push(queue: Queue[Any], kind: str, period: datetime) -> None:
    """Push the job of a period, and retry until it is acknowledged."""
    request = None
    while True:
        try:
            # The payload depends on the period alone, or instances would contradict each other.
            payload = {"period": period.isoformat()}
            await queue.push(kind, payload, key=key_of(kind, period), request=request)
        except UnavailableError as error:
            print(f"{error}; trying again", file=sys.stderr)
            request = error.request
        else:
            print(f"pushed {key_of(kind, period)}", flush=True)
            return


async def run(url: str, kind: str, every: timedelta, catch_up: timedelta) -> None:
    """Push periods that may have been missed and the current one, then each when it begins."""
    async with bucketq.connect(url) as queue:
        kept = timedelta(seconds=(await queue.settings()).key_retention_s)
        if kept < catch_up + MARGIN:
            wanted_s = (catch_up + MARGIN).total_seconds()
            sys.exit(
                f"{url} forgets keys after {kept}: set key_retention_s to {wanted_s:g} or more"
            )
        period = period_of(datetime.now(UTC) - catch_up, every) + every
        while True:
            while period <= datetime.now(UTC):
                await push(queue, kind, period)
                period += every
            await asyncio.sleep((period - datetime.now(UTC)).total_seconds())


def main() -> None:
    """Read the command line, and run until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Push a job for each period, once.")
    parser.add_argument("url")
    parser.add_argument("kind")
    parser.add_argument("--every", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--catch-up", type=int, default=0, metavar="SECONDS")
    given = parser.parse_args()
    every = timedelta(seconds=given.every)
    catch_up = max(every, timedelta(seconds=given.catch_up))
    try:
        asyncio.run(run(given.url, given.kind, every, catch_up))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

"""``QueueMeter``: one queue in numbers, measured again and again.

It asks for counts and workers, which cost little more at a million jobs than at ten. If its kinds
are shown, it also asks for the first waiting job of some of them, in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from bucketq.cli.opening import open_queue
from bucketq.cli.terminal.worker_status import Rate
from bucketq.errors import BucketQError
from bucketq.model.queue_stats import Stats
from bucketq.model.worker_records import WorkerInfo
from bucketq.queue.queue import Queue

_LATE_S = 5.0
"""After how long without an answer a queue is shown as one that does not answer."""

_KINDS = 20
"""Of how many kinds the oldest job is asked for at a time: most screens have room for so many, and
each is a request."""


class QueueMeter:
    """The counts, rates and workers of a queue as they were when it was last asked."""

    def __init__(self, name: str, url: str, timeout_s: float) -> None:
        self.name = name
        self.url = url
        self.stats: Stats | None = None
        self.workers: list[WorkerInfo] = []
        self.shows_kinds = False
        """Whether the ages of its kinds are wanted."""
        self.oldest: dict[str, datetime] = {}
        """When the waiting job of a kind that was pushed first was pushed, as it was last seen."""
        self.pushed_per_s = 0.0
        self.ended_per_s = 0.0
        self.error: BucketQError | None = None
        """Why it could not be asked; None: it could."""
        self.queue: Queue[Any] | None = None
        """The open queue; None: there is no connection."""
        self._timeout_s = timeout_s
        self._rates = (Rate(), Rate())
        self._asked_s = 0.0
        self._turn = 0

    async def follow(self, pause_s: float, changed: Callable[[], None]) -> None:
        """Measure until cancelled, and connect again after an error; call ``changed`` each time."""
        while True:
            try:
                async with open_queue(self.url, self._timeout_s) as queue:
                    self.queue = queue
                    while True:
                        await self.measure(queue)
                        changed()
                        await asyncio.sleep(pause_s)
            except BucketQError as error:
                self.error = error
                changed()
            finally:
                self.queue = None
            await asyncio.sleep(pause_s)

    async def measure(self, queue: Queue[Any]) -> None:
        """Ask once."""
        loop = asyncio.get_running_loop()
        self._asked_s = loop.time()
        found, self.workers = await asyncio.gather(queue.stats(), queue.workers())
        if self.stats is not None and self.stats.incarnation != found.incarnation:
            self._rates = (Rate(), Rate())
        now_s = loop.time()
        rates = [
            rate.note(now_s, count)
            for rate, count in zip(self._rates, (found.pushed, found.ended), strict=True)
        ]
        self.pushed_per_s, self.ended_per_s = (max(0.0, rate) for rate in rates)
        if self.shows_kinds:
            await self._measure_kinds(queue, found)
        self.stats, self.error, self._asked_s = found, None, 0.0

    async def _measure_kinds(self, queue: Queue[Any], found: Stats) -> None:
        waiting = [kind for kind, counts in found.counts.items() if counts.get("queued")]
        start = self._turn % len(waiting) if waiting else 0
        asked = [*waiting[start:], *waiting[:start]][:_KINDS]
        self._turn = start + len(asked)
        pages = await asyncio.gather(
            *(queue.jobs(statuses=["queued"], kinds=[kind], limit=1) for kind in asked)
        )
        for kind, page in zip(asked, pages, strict=True):
            self.oldest.pop(kind, None)
            if page.jobs:
                self.oldest[kind] = page.jobs[0].pushed_at
        self.oldest = {kind: at for kind, at in self.oldest.items() if kind in waiting}

    def trouble(self, now_s: float) -> str:
        """Say why what is shown is old; empty: it is not."""
        if self.error is not None:
            return str(self.error)
        silent_s = now_s - self._asked_s if self._asked_s else 0.0
        return f"no answer for {silent_s:.0f} s" if silent_s > _LATE_S else ""

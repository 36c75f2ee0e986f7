"""``Announcer``: lets the queue list a worker, and notices a request to finish.

It sends what ``Queue.announce`` takes as often as leases are renewed, also while the worker is
idle. Nothing depends on it: if it fails, the worker is not listed, and works on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

from bucketq.clock import Clock, new_id
from bucketq.errors import BucketQError
from bucketq.model.worker_records import MOST_KINDS
from bucketq.queue.queue import Queue
from bucketq.worker.settling import Settling

_log = logging.getLogger("bucketq.worker")

_LEAVE_S = 1.0
"""How long the last announcement may take; without it the worker is listed for some minutes."""


class WorkerProcess(NamedTuple):
    """The process in which a worker runs."""

    host: str = "localhost"
    pid: int = 0
    version: str = "0"

    @classmethod
    def here(cls) -> Self:
        """Return this process."""
        from bucketq import __version__  # noqa: PLC0415 - it is read from the package's metadata

        return cls(socket.gethostname() or "unknown", os.getpid(), __version__)


class WorkerStatus(NamedTuple):
    """What changes while a worker runs."""

    concurrency: int
    running: int
    is_stopped: bool


class Announcer:
    """Announces one worker."""

    def __init__(
        self,
        queue: Queue[Any],
        clock: Clock,
        name: str,
        kinds: Iterable[str],
        process: WorkerProcess,
    ) -> None:
        """Announce a worker that starts now."""
        self._queue = queue
        self._run_id = new_id(clock)
        self._name = name
        self._kinds = tuple(kinds)[:MOST_KINDS]
        self._process = process
        self._since_s = asyncio.get_running_loop().time()
        self._is_listed = False
        self.on_drain: Callable[[], None] = lambda: None
        """Called if the queue asks the worker to finish."""
        self.starts_late = False
        """Whether a worker that is over soon, as most bursts are, is not listed."""

    async def run(
        self, status: Callable[[], WorkerStatus], settling: Settling, stopped: asyncio.Event
    ) -> None:
        """Announce the worker until cancelled, as often as the settings of its queue say."""
        if self.starts_late:
            await asyncio.sleep(settling.settings.heartbeat_s)
        while True:
            now = status()
            if await self._announce(now) and not stopped.is_set():
                _log.info("asked to finish: no more jobs are claimed, and handlers may finish")
                self.on_drain()
            try:
                async with asyncio.timeout(settling.settings.heartbeat_s):
                    # That it is stopped is announced at once, and then as often as before.
                    await (asyncio.Event() if now.is_stopped else stopped).wait()
            except TimeoutError:
                continue

    async def leave(self, limit_s: float) -> None:
        """Take the worker off the list, if that is quick."""
        if not self._is_listed:
            return
        try:
            async with asyncio.timeout(min(limit_s, _LEAVE_S)):
                await self._announce(WorkerStatus(0, 0, is_stopped=True), leaving=True)
        except TimeoutError:
            return

    async def _announce(self, status: WorkerStatus, *, leaving: bool = False) -> bool:
        self._is_listed = True  # Even if there is no answer.
        try:
            return await self._queue.announce(
                self._name,
                run_id=self._run_id,
                host=self._process.host,
                pid=self._process.pid,
                version=self._process.version,
                up_s=asyncio.get_running_loop().time() - self._since_s,
                kinds=self._kinds,
                concurrency=status.concurrency,
                running=status.running,
                draining=status.is_stopped,
                leaving=leaving,
            )
        except BucketQError as error:
            # An older broker does not know it; what makes the queue unusable shows elsewhere.
            _log.debug("the worker was not announced: %s", error)
            return False

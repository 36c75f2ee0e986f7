"""``PolledWaits``: waits for jobs in a process that writes the object directly.

No other process notifies it, so it looks at the object from time to time: one conditional read
serves all waits of the process, and they are looked up only if the object has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bucketq.commit.parked_waits import ParkedWaits
from bucketq.commit.pending_requests import LocalRequest
from bucketq.commit.upkeep.background import Background
from bucketq.errors import BucketQError, UnavailableError
from bucketq.model.operations import Request

_FIRST_POLL_S = 0.05
_LAST_POLL_S = 1.0
"""How often the object is looked at: often after a change, then as often as a conditional GET is
cheap on every store."""


class PolledWaits:
    """The waits of one committer that writes directly."""

    def __init__(
        self,
        read: Callable[[Request, float], Awaitable[Any]],
        look: Callable[[ParkedWaits], Awaitable[bool]],
    ) -> None:
        """Wait by looking.

        Args:
            read: Answers a wait from the object at once.
            look: Answers those of the parked waits whose jobs are over, and returns whether the
                object has changed.
        """
        self._read = read
        self._look = look
        self._parked = ParkedWaits()
        self._polling = Background()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def wait(self, request: Request, timeout_s: float) -> Any:
        """Answer a wait when its job is over, or its time is."""
        loop = asyncio.get_running_loop()
        pending = LocalRequest(request, 0, loop)
        answer = await self._read(request, timeout_s)
        if answer is not None or pending.until <= loop.time():
            return answer
        self._parked.add(pending)
        if self._task is None or self._task.done():
            self._task = self._polling.start(self._poll())
        try:
            return await pending.answer
        finally:
            self._parked.discard(pending)

    def announce(self) -> None:
        """Look at once: this process has changed the object."""
        self._changed.set()

    async def stop(self, error: Exception) -> None:
        """Answer all waits with an error, and look no more."""
        for pending in self._parked.take_all():
            pending.resolve(None, error)
        self._changed.set()
        await self._polling.finish(0)

    async def _poll(self) -> None:
        pause_s = _FIRST_POLL_S
        while self._parked:
            await self._pause(pause_s)
            for pending in self._parked.take_expired(asyncio.get_running_loop().time()):
                pending.resolve(None, None)
            if not self._parked:
                return
            self._changed.clear()
            try:
                has_changed = await self._look(self._parked)
            except UnavailableError:
                has_changed = False
            except BucketQError as error:
                for pending in self._parked.take_all():
                    pending.resolve(None, error)
                return
            pause_s = _FIRST_POLL_S if has_changed else min(2 * pause_s, _LAST_POLL_S)

    async def _pause(self, pause_s: float) -> None:
        """Wait for the next poll, a change made here, or the end of a wait."""
        expiry_s = self._parked.next_expiry()
        if expiry_s is not None:
            pause_s = min(pause_s, max(0.0, expiry_s - asyncio.get_running_loop().time()))
        try:
            async with asyncio.timeout(pause_s):
                await self._changed.wait()
        except TimeoutError:
            return

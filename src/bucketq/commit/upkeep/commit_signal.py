"""``CommitSignal``: tells upkeep that a request is about to cause a commit.

What upkeep submits then is a part of that commit, and needs no write of its own; in a quiet queue
those are a quarter of all.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class CommitSignal:
    """Set when a request has changed the state, before the commit that contains it begins."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.is_awaited = False
        """Whether upkeep waits for a commit."""

    def announce(self) -> None:
        """Let upkeep continue: what it submits now is in the next commit."""
        self._event.set()

    async def wait(self, limit_s: float) -> None:
        """Wait until the next commit is announced, but not longer than that."""
        self._event.clear()
        self.is_awaited = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._event.wait()
        finally:
            self.is_awaited = False

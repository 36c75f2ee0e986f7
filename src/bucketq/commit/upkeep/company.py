"""``Company``: lets upkeep share a commit that somebody else causes.

A commit of its own would cost a write, and a quiet queue would pay for many of those.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Company:
    """Where upkeep waits until a request has changed something that is to be committed."""

    def __init__(self) -> None:
        """Begin alone."""
        self._come = asyncio.Event()
        self.is_awaited = False
        """Whether something waits."""

    def come(self) -> None:
        """Let what waits continue, in time for the commit that is about to begin."""
        self._come.set()

    async def wait(self, limit_s: float) -> None:
        """Wait until somebody comes, but not longer than that."""
        self._come.clear()
        self.is_awaited = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._come.wait()
        finally:
            self.is_awaited = False

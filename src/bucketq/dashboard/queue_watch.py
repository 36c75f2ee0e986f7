"""``QueueWatch``: one queue as one user of the page sees it.

It holds a connection of its own, made with the token of that user, so a broker checks the rights of
each call and names the token in the audit. It counts the queue every two seconds and passes that on
to the pages that are open. If the queue cannot be reached it says so, and tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from bucketq.client.connect import connect
from bucketq.client.connect_arguments import BROKERS, Mode
from bucketq.clock import Clock, new_id
from bucketq.dashboard.stats_ring import FINE_S, Sample, StatsRing
from bucketq.errors import (
    AccessDeniedError,
    BatchNotFoundError,
    BucketQError,
    ClosedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.queue_stats import Stats
from bucketq.model.tokens import Right
from bucketq.queue.queue import Queue

T = TypeVar("T")

CALL_S = 20.0
"""How long a call may take. Longer than a failover, and a person still waits for it."""
_COUNT_S = 5.0
"""After how long without an answer the page says that the queue does not answer."""


class QueueWatch:
    """A queue, what it counted lately, and the pages that look at it."""

    def __init__(
        self, name: str, url: str, clock: Clock, *, token: str | None = None, login: bool = False
    ) -> None:
        """Watch a queue with a token; None: that of the environment, if there is one.

        With ``login`` the token decides what the user may do. Only brokers check tokens, so the
        queue is used through one or not at all.
        """
        self.name = name
        self.url = url
        self.rights: tuple[Right, ...] = ()
        """What the token was found to allow."""
        self.stats: Stats | None = None
        self.trouble = ""
        """Why the queue does not answer; empty: it does."""
        self._clock = clock
        self._token = token
        self._mode: Mode = "remote" if login and not url.startswith(BROKERS) else "auto"
        self._stack: AsyncExitStack | None = None
        self._queue: Queue[Any] | None = None
        self._opening = asyncio.Lock()
        self._ring = StatsRing()
        self._news = asyncio.Event()
        self._counting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to count the queue."""
        if self._counting is None:
            self._counting = asyncio.create_task(self._count_forever())

    async def close(self) -> None:
        """Stop counting, end the streams of events, and close the connection."""
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.cancel()
            with suppress(asyncio.CancelledError):
                await counting
        self._wake_pages()
        await self._disconnect()

    async def call(self, verb: Callable[[Queue[Any]], Awaitable[T]]) -> T:
        """Call a verb of the queue, and connect first if necessary.

        Raises:
            UnavailableError: There was no answer in time; what was asked for may still happen.
        """
        try:
            async with asyncio.timeout(CALL_S):
                return await verb(await self._connected())
        except TimeoutError as error:
            message = f"{self.url} has not answered within {CALL_S:g} s; the outcome is unknown"
            raise UnavailableError(message) from error
        except (SupersededError, ClosedError):
            await self._disconnect()  # Another queue has its address, and the next call opens that.
            raise

    async def find_rights(self) -> tuple[Right, ...]:
        """Find out what the token allows, by requests that change nothing."""
        if await self._is_allowed(lambda queue: queue.tokens()):
            self.rights = ("push", "claim", "read", "admin")
        else:
            await self.call(lambda queue: queue.stats())
            may_push = await self._is_allowed(lambda queue: queue.close_batch(new_id(self._clock)))
            self.rights = ("push", "read") if may_push else ("read",)
        return self.rights

    def samples(self) -> list[Sample]:
        """Return the counts of the last hours, oldest first."""
        return self._ring.samples()

    def counts_ended(self) -> Callable[[float], float | None]:
        """Return how to find the number of jobs that had ended at a time in seconds, if known."""
        return self._ring.counts_ended()

    async def until_counted(self) -> None:
        """Wait until the queue was counted for the first time, or could not be."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_S):
                while self._counting is not None and self.stats is None and not self.trouble:
                    await self._news.wait()

    async def events(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield a name and JSON whenever the queue was counted or could not be, until ``close``."""
        sent_ms = self._ring.last_ms() - 1  # A page has loaded what was there before.
        while self._counting is not None:
            if self.trouble:
                yield "trouble", msgspec.json.encode({"error": self.trouble})
            elif self.stats is not None:
                samples, sent_ms = self._ring.samples(after_ms=sent_ms), self._ring.last_ms()
                document = {"stats": self.stats, "samples": samples, "rights": self.rights}
                yield "stats", msgspec.json.encode(document)
            news = self._news
            await news.wait()

    async def _connected(self) -> Queue[Any]:
        async with self._opening:
            if self._queue is None:
                async with AsyncExitStack() as stack:
                    connection = connect(
                        self.url,
                        mode=self._mode,
                        launch="never",
                        create=False,
                        timeout_s=CALL_S,
                        token=self._token,
                    )
                    self._queue = await stack.enter_async_context(connection)
                    self._stack = stack.pop_all()
            return self._queue

    async def _disconnect(self) -> None:
        stack, self._stack, self._queue = self._stack, None, None
        if stack is not None:
            with suppress(BucketQError):
                await stack.aclose()

    async def _is_allowed(self, verb: Callable[[Queue[Any]], Awaitable[object]]) -> bool:
        try:
            await self.call(verb)
        except AccessDeniedError:
            return False
        except BatchNotFoundError:
            return True
        return True

    async def _count_forever(self) -> None:
        while True:
            await self._count()
            self._wake_pages()
            await asyncio.sleep(FINE_S)

    async def _count(self) -> None:
        try:
            lacks = self._ring.lacks(self._clock.now())
            async with asyncio.timeout(_COUNT_S):
                found = await self.call(lambda queue: queue.stats(samples=lacks))
            if not self.rights:
                await self.find_rights()
        except TimeoutError:
            self.trouble = f"the queue has not answered for {_COUNT_S:g} s"
        except BucketQError as error:
            self.trouble = str(error)
        else:
            # Only now: a page that gets counts before the rights hides what the user may do.
            self.stats, self.trouble = replace(found, samples=None), ""
            now = self._clock.now()
            self._ring.fill(found, now)
            self._ring.add(found, now)

    def _wake_pages(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

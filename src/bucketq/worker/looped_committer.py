"""``LoopedCommitter``: lets handlers on another event loop use the queue of their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from bucketq.commit.base import Committer
from bucketq.errors import ClosedError
from bucketq.model.operations import Request

A = TypeVar("A")


class LoopedCommitter:
    """Passes requests to a committer that belongs to the loop of another thread."""

    def __init__(self, committer: Committer, loop: asyncio.AbstractEventLoop) -> None:
        self._committer = committer
        self._loop = loop

    @property
    def where(self) -> str:
        """What messages call the queue."""
        return self._committer.where

    @property
    def mode(self) -> str:
        """How requests are committed."""
        return self._committer.mode

    @property
    def version(self) -> int:
        """The newest version of the object that is known."""
        return self._committer.version

    @property
    def is_open(self) -> bool:
        """Whether the worker still accepts requests."""
        return self._committer.is_open

    @property
    def joins(self) -> bool:
        """Whether it takes several requests as one."""
        return self._committer.joins

    async def open(self) -> None:
        """Do nothing: the worker has opened the queue."""

    async def close(self) -> None:
        """Do nothing: the worker closes the queue."""

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Commit a request on the loop of the worker."""
        return await asyncio.wrap_future(self.start(request, timeout_s))

    async def flush_archive(self) -> int:
        """Archive everything that is finished now."""
        return await asyncio.wrap_future(self.start_flush())

    def start(self, request: Request, timeout_s: float) -> Future[Any]:
        """Submit a request, from any thread."""
        return self._start(lambda: self._committer.submit(request, timeout_s))

    def start_flush(self) -> Future[int]:
        """Archive everything that is finished now, from any thread."""
        return self._start(self._committer.flush_archive)

    def _start(self, make: Callable[[], Coroutine[Any, Any, A]]) -> Future[A]:
        if self._loop.is_closed():
            message = "the worker has ended, and its queue is closed"
            raise ClosedError(message)
        return asyncio.run_coroutine_threadsafe(make(), self._loop)

"""``PayloadStream``: a payload in chunks, for handlers in any loop or thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

from bucketq.errors import ClosedError


class PayloadStream:
    """The chunks of a payload: ``async for chunk in stream``, or ``for`` in a thread.

    It can be read once.
    """

    def __init__(self, chunks: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """Read chunks on the loop of their queue, which may be another than that of the reader."""
        self._chunks = chunks
        self._loop = loop

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the chunks."""
        if asyncio.get_running_loop() is self._loop:
            async for chunk in self._chunks:
                yield chunk
            return
        while (got := await asyncio.wrap_future(self._ask(self._next()))) is not None:
            yield got

    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks, and block until each is there. Not in the loop of the queue."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            message = "read the payload with `async for`: `for` would block the loop of the queue"
            raise ClosedError(message)
        while (chunk := self._ask(self._next()).result()) is not None:
            yield chunk

    async def _next(self) -> bytes | None:
        return await anext(self._chunks, None)

    def _ask(self, chunk: Coroutine[Any, Any, bytes | None]) -> Future[bytes | None]:
        return asyncio.run_coroutine_threadsafe(chunk, self._loop)

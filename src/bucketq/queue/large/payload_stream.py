"""``PayloadStream``: a payload in chunks, for handlers in any loop or thread.

``checked_parts`` is where its chunks come from if it is a side object.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from bucketq.errors import ClosedError, CorruptStateError, PayloadLostError
from bucketq.loop_calls import call_on
from bucketq.model.side_objects import SideRef, new_digest

A = TypeVar("A")

_AT_ONCE = 4
"""How many parts of one object are under way: enough to hide the latency of a store."""


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
        while True:
            asked = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            if (got := await asyncio.wrap_future(asked)) is None:
                return
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
        while (chunk := call_on(self._loop, self._next)) is not None:
            yield chunk

    async def _next(self) -> bytes | None:
        return await anext(self._chunks, None)


async def in_order(
    call: Callable[[Any], Awaitable[A]], values: Sequence[Any], at_once: int = _AT_ONCE
) -> AsyncIterator[A]:
    """Call with each value, some at once, and yield the answers in order."""
    loop = asyncio.get_running_loop()
    waiting = iter(values)
    tasks: deque[asyncio.Task[A]] = deque()

    async def run(value: Any) -> A:
        return await call(value)

    try:
        for value in waiting:
            tasks.append(loop.create_task(run(value)))
            if len(tasks) >= at_once:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def checked_parts(
    read: Callable[[int], Awaitable[bytes]], ref: SideRef, what: str
) -> AsyncIterator[bytes]:
    """Yield a side object part by part, and check it at the end.

    Raises:
        PayloadLostError: It is missing or damaged.
    """
    digest, size_bytes = new_digest(), 0
    try:
        async for data in in_order(read, range(ref.parts)):
            digest.update(data)
            size_bytes += len(data)
            yield data
    except (CorruptStateError, PayloadLostError) as error:
        message = f"{what} is lost: {error}"
        raise PayloadLostError(message) from error
    if digest.hexdigest() != ref.digest or size_bytes != ref.bytes:
        message = (
            f"{what} is damaged: the side object {ref.object} has {size_bytes:,} bytes with "
            f"another digest than the {ref.bytes:,} that were written"
        )
        raise PayloadLostError(message)

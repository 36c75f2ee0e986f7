"""Ends a command that waits when the reader of its output is gone, as ``tail -f`` does.

A command that writes learns it from the write. One that waits for something to write would stay,
for hours perhaps, after ``| head`` has ended.
"""

from __future__ import annotations

import asyncio
import io
import select
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_LOOK_S = 1.0
"""How often to look: one system call."""


async def while_read(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` to its end, or raise ``BrokenPipeError`` once no process reads stdout."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            if not task.done() and is_reader_gone():
                raise BrokenPipeError
        await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})


def is_reader_gone() -> bool:
    """Whether stdout is a pipe or a terminal that no process reads any more."""
    try:
        place = sys.stdout.fileno()
    except (io.UnsupportedOperation, ValueError):
        return False  # It is in memory, or closed.
    poll = select.poll()
    poll.register(place, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))

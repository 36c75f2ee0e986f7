"""``StoreCalls``: asks a store about one object, for a limited time, and keeps what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.store.base import LockHeldError

A = TypeVar("A")

_ANSWER_S = 10.0
_SLOWEST_BYTES_PER_S = 1024 * 1024
"""How long a request may take: a busy store answers within seconds, and a slow line carries a
megabyte a second. A request that is given up too early must be resolved as a lost answer."""
_FIRST_GUESS_BYTES = 16 * 1024 * 1024
"""How much larger than expected an object may be, after a read of it timed out."""
_LAST_GUESS_BYTES = 512 * 1024 * 1024
"""An object has up to 256 MiB of finished jobs (``model/effects/room.py``) and, by default, as much
of others. A read that hangs is given up after nine minutes, however long an outage lasted."""


class NoAnswerError(UnavailableError):
    """The storage did not answer in time; an object may be too large for the time that it had."""


class StoreCalls:
    """The requests of one process for one object."""

    def __init__(self, where: str) -> None:
        """Begin; ``where`` is what messages call the object."""
        self._where = where
        self.trouble: UnavailableError | None = None
        """Why the storage did not answer the last request, for a caller that gives up."""
        self.failures = 0
        """How many requests were not answered, or refused; a lock does not count."""

    async def ask(self, answer: Awaitable[A], size_bytes: int) -> A:
        """Await the store, for a time that grows with the bytes to transfer."""
        limit_s = patience_s(size_bytes)
        try:
            async with asyncio.timeout(limit_s):
                result = await answer
        except UnavailableError as error:
            self.trouble = error
            self.failures += not isinstance(error, LockHeldError)
            raise
        except StoreRefusedError:
            self.failures += 1
            raise
        except TimeoutError as error:
            self.failures += 1
            message = f"no answer from {self._where} in {limit_s:.0f} s"
            self.trouble = NoAnswerError(message)
            raise self.trouble from error
        self.trouble = None
        return result


def patience_s(size_bytes: int) -> float:
    """Return how long the storage may take to answer, for so many bytes."""
    return _ANSWER_S + size_bytes / _SLOWEST_BYTES_PER_S


def larger_than(size_bytes: int) -> int:
    """Return how large an object may be that could not be read in the time for so many bytes."""
    return min(2 * size_bytes + _FIRST_GUESS_BYTES, max(size_bytes, _LAST_GUESS_BYTES))

"""The one loop that resolves the outcome of a conditional write.

A write to an object store has three outcomes: it landed, it did not, or its answer was lost and
the outcome is unknown. A timeout, a server error, a broken connection and even a conflict can
follow a write that landed, and a write that timed out can land much later. So no answer but a
plain success decides anything here. The caller reads the object back and judges it:

* ``LANDED``: the object contains the write, perhaps beneath later ones.
* ``LOST``: the object cannot contain the write, now or later.
* ``FORGOTTEN``: too much was written since. The write may or may not be among it.
* ``OPEN``: the object is still what the write was to replace. A late write can land, so this is
  never read as "failed". The identical write is sent again, under the same condition: of all
  copies at most one takes effect.

How the object is read and judged differs: a queue keeps a ring of commit ids, a version of a
Delta table names its transaction, a copy is its own bytes. The loop is the same for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, PreconditionFailedError

F = TypeVar("F")


class Verdict(Enum):
    """What became of a write."""

    LANDED = "landed"
    LOST = "lost"
    FORGOTTEN = "forgotten"
    OPEN = "open"


class WriteOutcome(Struct, Generic[F], frozen=True):
    """The verdict on a write, never ``OPEN``, and what it was judged by."""

    verdict: Verdict
    found: F | None
    """What was read back; None: the store answered the write, and nothing had to be read."""


async def write_until_certain(
    send: Callable[[], Awaitable[object]],
    read_back: Callable[[], Awaitable[F]],
    judge: Callable[[F], Verdict],
    new_backoff: Callable[[], RetryBackoff],
) -> WriteOutcome[F]:
    """Send a conditional write until its outcome is certain.

    Bound the time with ``asyncio.timeout``: a caller that gives up must report the outcome as
    unknown. Whatever else ``read_back`` and ``judge`` raise ends the loop.

    Args:
        send: Sends the write once. Every call must send the same bytes under the same condition.
        read_back: Reads the object; it is retried while the store does not answer or refuses.
        judge: What the object, as it was read, says about the write.
        new_backoff: Makes the waits between tries, for the writes and for each reading.

    Raises:
        StoreRefusedError: The store refused the write, and no earlier try is in doubt.
    """
    backoff = new_backoff()
    in_doubt = False
    while True:
        try:
            await send()
        except StoreRefusedError:
            # It says that this try had no effect, and nothing about the tries before it.
            if not in_doubt:
                raise
        except (UnavailableError, PreconditionFailedError, ObjectMissingError):
            in_doubt = True
        else:
            return WriteOutcome(Verdict.LANDED, None)
        found = await _read(read_back, new_backoff())
        verdict = judge(found)
        if verdict is not Verdict.OPEN:
            return WriteOutcome(verdict, found)
        await backoff.wait()


async def _read(read_back: Callable[[], Awaitable[F]], backoff: RetryBackoff) -> F:
    while True:
        try:
            return await read_back()
        except (UnavailableError, StoreRefusedError):
            await backoff.wait()

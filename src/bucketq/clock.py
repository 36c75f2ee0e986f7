"""Wall time, ids and entropy: the only sources of non-determinism, behind one seam.

Everything else receives a ``Clock``, so that the simulator can put its own in place and a
seed replays to the letter. Monotonic time is not here: it is the running event loop's
``time()`` and nothing else.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Protocol

from bucketq.base32 import crockford

_ID_LENGTH = 26
_TIME_BITS = 48
_RANDOM_BYTES = 10


class Clock(Protocol):
    """What the outside world tells bucketq, apart from what is in the object."""

    def now(self) -> datetime:
        """The wall time in UTC. It may jump, and differs between hosts."""
        ...

    def entropy(self, size_bytes: int) -> bytes:
        """Bytes that nobody can guess and that never come twice."""
        ...


class SystemClock:
    """The clock and the entropy of the machine."""

    def now(self) -> datetime:
        """Return the system's wall time in UTC."""
        return datetime.now(UTC)

    def entropy(self, size_bytes: int) -> bytes:
        """Return bytes from the operating system's generator."""
        return os.urandom(size_bytes)


def new_id(clock: Clock) -> str:
    """Make an id of 26 characters that sorts roughly by time: 48 bits of it, then 80 random.

    The time in it is for people who read the object. Nothing is ordered by it.
    """
    entropy = int.from_bytes(clock.entropy(_RANDOM_BYTES))
    return crockford((id_time(clock) << (8 * _RANDOM_BYTES)) | entropy, _ID_LENGTH)


def id_time(clock: Clock) -> int:
    """The wall time as ids carry it: milliseconds since 1970, in 48 bits."""
    return int(clock.now().timestamp() * 1000) & ((1 << _TIME_BITS) - 1)


def new_token(clock: Clock) -> str:
    """Make a token of 128 random bits, in hexadecimal."""
    return clock.entropy(16).hex()


def fraction(clock: Clock) -> float:
    """Draw a number in [0, 1), for jitter."""
    return int.from_bytes(clock.entropy(4)) / 2**32

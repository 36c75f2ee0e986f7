"""The wall clock and the entropy of one simulated host, both from the seed.

Hosts disagree about the time, drift apart and are corrected with a jump, and a queue must not
depend on them. Each simulated host gets its own clock, with an offset and a drift.
"""

from __future__ import annotations

import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from datetime import UTC, datetime, timedelta

from bucketq.testing.virtual_loop import VirtualLoop

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of a correct clock when virtual time is 0."""


class SimulatedClock:
    """A ``Clock`` that shows virtual time, with an offset and a drift.

    Attributes:
        offset_s: How far it is ahead of the true time, apart from its drift.
        drift: How much it gains in each second: 0.001 is a second in a thousand.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random | None = None,
        offset_s: float = 0.0,
        drift: float = 0.0,
    ) -> None:
        """Make a clock; without ``rng`` it draws entropy from its own stream."""
        self._loop = loop
        self._rng = loop.stream("clock") if rng is None else rng
        self.offset_s = offset_s
        self.drift = drift

    def now(self) -> datetime:
        """Return the wall time of this host, in UTC."""
        seconds = self._loop.time() * (1.0 + self.drift) + self.offset_s
        return EPOCH + timedelta(seconds=seconds)

    def entropy(self, size_bytes: int) -> bytes:
        """Return the next bytes of the stream: the same in every replay."""
        return self._rng.randbytes(size_bytes)

    def jump(self, seconds: float) -> None:
        """Set the clock forward, or back if ``seconds`` is negative."""
        self.offset_s += seconds

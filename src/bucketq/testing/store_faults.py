"""How often which thing goes wrong between a process and its storage.

Each field of ``Faults`` that is a rate names one fault; the store counts what it injects
under the same names. The rates are per request, at most one fault strikes a request, and
reads suffer those that a read can suffer. This module is data alone and touches nothing.
"""

from __future__ import annotations

import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate

READ_FAULTS = ("lost_request", "lost_answer", "throttled", "server_error", "slow")
"""What can happen to any request."""

WRITE_FAULTS = (*READ_FAULTS, "late_landing", "self_conflict", "contended", "duplicated")
"""What can happen to a write: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The rates of faults, each between 0 and 1, and how long the slow ones take.

    Attributes:
        lost_request: It never arrives. The caller hears of a reset, or nothing until its
            time is up.
        lost_answer: It took effect, and the answer is lost in one of the same two ways.
        throttled: 429 or 503, with ``throttled`` set. One in ten took effect all the same.
        server_error: 500. Every second one took effect all the same.
        slow: It takes ``slow_s`` longer, on the way there or on the way back, and may so
            outlast the caller's patience.
        late_landing: The caller is told that it failed; the write arrives ``late_s`` after
            that, with its old precondition, and whether or not its sender still lives.
        self_conflict: The write took effect, a retry below the caller sent it once more, and
            the caller gets the answer to the second one: a failed precondition.
        contended: 409, a conflict with a write in flight. No effect, and it proves nothing.
        duplicated: It arrives a second time, ``late_s`` after the first; the caller gets the
            first answer.
        slow_s: Bounds of the extra time of a slow request.
        late_s: Bounds of the delay of late and duplicated writes, drawn evenly over the
            orders of magnitude, since a race is won by milliseconds and a phantom by minutes.
    """

    lost_request: float = 0.0
    lost_answer: float = 0.0
    throttled: float = 0.0
    server_error: float = 0.0
    slow: float = 0.0
    late_landing: float = 0.0
    self_conflict: float = 0.0
    contended: float = 0.0
    duplicated: float = 0.0
    slow_s: tuple[float, float] = (0.5, 15.0)
    late_s: tuple[float, float] = (0.001, 60.0)

    def __post_init__(self) -> None:
        """Refuse rates that are no probabilities."""
        rates = self.rates(WRITE_FAULTS)
        if min(rates) < 0 or sum(rates) > 1:
            raise ValueError(f"fault rates must be 0 or more and at most 1 together: {self}")

    @classmethod
    def none(cls) -> Faults:
        """Nothing goes wrong."""
        return cls()

    @classmethod
    def harsh(cls) -> Faults:
        """Every fault there is, about one in every four writes: a bad day, for ever."""
        return cls(
            lost_request=0.02,
            lost_answer=0.04,
            throttled=0.03,
            server_error=0.03,
            slow=0.05,
            late_landing=0.04,
            self_conflict=0.03,
            contended=0.02,
            duplicated=0.03,
        )

    def times(self, factor: float) -> Faults:
        """The same faults, more or less often."""
        rates = {name: factor * getattr(self, name) for name in WRITE_FAULTS}
        return replace(self, **rates)

    def rates(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """Return the rates of the faults of these names, in their order."""
        return tuple(getattr(self, name) for name in names)


class FaultDice:
    """Draws at most one fault for a request, with a single random number."""

    def __init__(self, faults: Faults, names: tuple[str, ...]) -> None:
        """Lay the rates end to end, so that one number between 0 and 1 picks one."""
        self._names = names
        self._ends = tuple(accumulate(faults.rates(names)))

    def draw(self, rng: random.Random) -> str | None:
        """Return the name of the fault that strikes, or None."""
        place = bisect_right(self._ends, rng.random())
        return self._names[place] if place < len(self._names) else None

"""The faults between a process and its storage, and their rates.

Each field of ``Faults`` that is a rate names one fault; the store counts the faults that it injects
under the same names. Rates are per request, a request meets at most one fault, and reads meet only
those in ``READ_FAULTS``.
"""

from __future__ import annotations

import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate

READ_FAULTS = ("lost_request", "lost_answer", "throttled", "server_error", "slow")
"""The faults of any request."""

WRITE_FAULTS = (*READ_FAULTS, "late_landing", "self_conflict", "contended", "duplicated")
"""The faults of a write: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The rates of faults, each between 0 and 1, and how long the slow ones take.

    All are given by name: ``Faults(lost_answer=0.1)``. A rate that is left out is 0.

    Attributes:
        lost_request: It never arrives. The caller gets a reset, or a timeout.
        lost_answer: It took effect, and the answer is lost in one of the same two ways.
        throttled: 429 or 503, with ``throttled`` set. One in ten took effect anyway.
        server_error: 500. Every second one took effect anyway.
        slow: It takes ``slow_s`` longer to arrive or to be answered, perhaps longer than the
            caller waits.
        late_landing: The caller gets an error; the write arrives ``late_s`` after that, with its
            old precondition, whether or not its sender still lives.
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
        """Reject rates that are not probabilities."""
        rates = self.rates(WRITE_FAULTS)
        if min(rates) < 0 or sum(rates) > 1:
            raise ValueError(f"fault rates must be 0 or more and at most 1 together: {self}")

    @classmethod
    def none(cls) -> Faults:
        """Return no faults."""
        return cls()

    @classmethod
    def harsh(cls) -> Faults:
        """Return every fault, for about one in four writes."""
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
        """Return the same faults with all rates multiplied."""
        rates = {name: factor * getattr(self, name) for name in WRITE_FAULTS}
        return replace(self, **rates)

    def rates(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """Return the rates of the faults of these names, in their order."""
        return tuple(getattr(self, name) for name in names)


class FaultDice:
    """Draws at most one fault for a request, with a single random number."""

    def __init__(self, faults: Faults, names: tuple[str, ...]) -> None:
        """Accumulate the rates, so that one number between 0 and 1 selects a fault."""
        self._names = names
        self._ends = tuple(accumulate(faults.rates(names)))

    def draw(self, rng: random.Random) -> str | None:
        """Return the name of the drawn fault, or None."""
        place = bisect_right(self._ends, rng.random())
        return self._names[place] if place < len(self._names) else None

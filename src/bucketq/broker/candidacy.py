"""What a broker knows of its own takeovers: the one that it attempts, and when it was deposed.

A takeover is pending, or in doubt: its write has had no answer, and may have landed or land later.
Until that is known, the broker names itself as the coming leader, because a process that reads the
object and pings it must not treat it as gone. That ends after a while: a broker that is cut off
from the storage never learns the outcome.
"""

from __future__ import annotations

DOUBT_S = 30.0
"""How long a takeover may be in doubt; a leader reports after a similar time that it is cut off."""
_MEMORY_S = 60.0
"""How long a deposition counts towards the cooldown."""
_FIRST_COOL_DOWN_S = 1.0
"""Longer than a takeover takes, so that two brokers do not depose each other in turn."""
_LONGEST_COOL_DOWN_S = 60.0
"""A broker that is needed again comes back within a minute."""


class Candidacy:
    """The takeovers of one broker."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._until_s = float("inf")
        self._depositions: list[float] = []
        self.depositions = 0
        """How often another took over from this broker."""

    def begin(self, epoch: int) -> None:
        """Begin a takeover for an epoch."""
        self._epoch, self._until_s = epoch, float("inf")

    def end(self) -> None:
        """Note that the outcome of the takeover is known."""
        self._epoch = None

    def doubt(self, now_s: float) -> None:
        """Note that the outcome of the takeover is unknown."""
        self._until_s = now_s + DOUBT_S

    def see(self, epoch: int) -> None:
        """Note the epoch in the object."""
        if self._epoch is not None and epoch >= self._epoch:
            self._epoch = None

    def epoch(self, now_s: float) -> int | None:
        """The epoch in which it may already lead without knowing; None: there is none."""
        return self._epoch if now_s < self._until_s else None

    def note_deposition(self, now_s: float) -> None:
        """Note that another broker took over although this one was alive."""
        self._depositions.append(now_s)
        self.depositions += 1

    def cool_down_s(self, now_s: float) -> float:
        """Return the cooldown before the next takeover; it doubles with each recent deposition."""
        self._depositions = [at for at in self._depositions if now_s - at < _MEMORY_S]
        count = len(self._depositions)
        return min(_FIRST_COOL_DOWN_S * 2 ** (count - 1), _LONGEST_COOL_DOWN_S) if count else 0.0

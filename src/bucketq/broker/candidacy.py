"""What a broker remembers of its own takeovers: the one that it tries, and those that it lost.

A takeover is under way, or in doubt: its write has had no answer, and may have landed or land
later. Until that is known the broker names itself as the leader to be, for whoever reads the object
and pings it must not take it for gone. Not for ever, though: one that is cut off from the storage
never learns how it ended.
"""

from __future__ import annotations

DOUBT_S = 30.0
"""How long a takeover may be in doubt; a leader that is cut off says so after a similar time."""
_MEMORY_S = 60.0
_FIRST_COOL_DOWN_S = 1.0
_LONGEST_COOL_DOWN_S = 60.0


class Candidacy:
    """The takeovers of one broker."""

    def __init__(self) -> None:
        """Begin without any."""
        self._epoch: int | None = None
        self._until_s = float("inf")
        self._depositions: list[float] = []
        self.depositions = 0
        """How often another took over from this broker."""

    def begin(self, epoch: int) -> None:
        """Try to lead in an epoch."""
        self._epoch, self._until_s = epoch, float("inf")

    def end(self) -> None:
        """Note that it is known how that ended."""
        self._epoch = None

    def doubt(self, now_s: float) -> None:
        """Note that it is not known how that ended."""
        self._until_s = now_s + DOUBT_S

    def see(self, epoch: int) -> None:
        """Note which epoch the object is in."""
        if self._epoch is not None and epoch >= self._epoch:
            self._epoch = None

    def epoch(self, now_s: float) -> int | None:
        """The epoch in which it leads for all it knows, as soon as it knows; None: in none."""
        return self._epoch if now_s < self._until_s else None

    def note_deposition(self, now_s: float) -> None:
        """Note that another took over from this broker, which was alive."""
        self._depositions.append(now_s)
        self.depositions += 1

    def cool_down_s(self, now_s: float) -> float:
        """How long not to stand again; it doubles with each deposition of the last minute."""
        self._depositions = [at for at in self._depositions if now_s - at < _MEMORY_S]
        count = len(self._depositions)
        return min(_FIRST_COOL_DOWN_S * 2 ** (count - 1), _LONGEST_COOL_DOWN_S) if count else 0.0

"""Claims that wait for a job, first come, first served.

A claim that finds nothing is parked, and costs nothing until there is something for it: the
committer serves the parked claims before a write goes out, so that a job can be pushed and handed
out in one commit. Claims of the same kinds share a line, so that finding the next claim to serve
costs as much as there are lines, not claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from bucketq.model.state import State

_SWEEP_ABOVE = 64


def next_due_s(state: State | None, now: datetime) -> float | None:
    """How long it takes until a delayed job can be handed out; None: there is nothing to expect."""
    due = None if state is None or state.paused else state.next_due()
    return None if due is None else (due - now).total_seconds()


class Parked(Protocol):
    """A claim that can be parked."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it wants; none: any."""
        ...

    @property
    def secret(self) -> str:
        """What is the same in every copy of it."""
        ...

    @property
    def until(self) -> float:
        """How long it may wait, by the loop's time."""
        ...


K = TypeVar("K")
W = TypeVar("W", bound=Parked)


class Parking(Generic[W]):
    """The claims that wait at one queue."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lines: dict[tuple[str, ...], dict[int, W]] = {}
        self._timers: list[tuple[float, int, W]] = []
        self._numbers: dict[int, int] = {}
        """The number of each claim, by its identity."""
        self._copies: dict[str, dict[int, W]] = {}
        """The copies of each claim, by its secret: one that is sent again may find the first."""
        self._next = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[W]:
        """Those who wait, line by line."""
        for line in self._lines.values():
            yield from line.values()

    def add(self, claim: W) -> None:
        """Let a claim wait, behind all others."""
        self._next += 1
        self._numbers[id(claim)] = self._next
        self._lines.setdefault(claim.kinds, {})[self._next] = claim
        self._copies.setdefault(claim.secret, {})[self._next] = claim
        heappush(self._timers, (claim.until, self._next, claim))
        if len(self._timers) > 2 * len(self._numbers) + _SWEEP_ABOVE:
            self._timers = sorted(entry for entry in self._timers if self._is_parked(entry))

    def discard(self, claim: W) -> bool:
        """Let a claim go; returns whether it waited here."""
        number = self._numbers.pop(id(claim), None)
        if number is None:
            return False
        _remove(self._lines, claim.kinds, number)
        _remove(self._copies, claim.secret, number)
        return True

    def withdraw(self, secret: str) -> list[W]:
        """Take out a claim, with its copies, whatever there is for it."""
        withdrawn = list(self._copies.get(secret, {}).values())
        for claim in withdrawn:
            self.discard(claim)
        return withdrawn

    def next_servable(self, state: State, now: datetime) -> W | None:
        """Take out the claim that has waited longest among those for which there is a job."""
        if state.paused or not self._lines:
            return None
        state.promote(now)
        first: tuple[int, W] | None = None
        for kinds, line in self._lines.items():
            number, claim = next(iter(line.items()))
            if (first is None or number < first[0]) and _has_job(state, kinds, now):
                first = (number, claim)
        if first is None:
            return None
        self.discard(first[1])
        return first[1]

    def take_expired(self, now_s: float) -> list[W]:
        """Take out the claims that have waited long enough."""
        expired = []
        while self._timers and (
            self._timers[0][0] <= now_s or not self._is_parked(self._timers[0])
        ):
            entry = heappop(self._timers)
            if self._is_parked(entry):
                self.discard(entry[2])
                expired.append(entry[2])
        return expired

    def next_expiry(self) -> float | None:
        """When the next claim will have waited long enough, or None."""
        while self._timers and not self._is_parked(self._timers[0]):
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _is_parked(self, entry: tuple[float, int, W]) -> bool:
        return self._numbers.get(id(entry[2])) == entry[1]


def _remove(groups: dict[K, dict[int, W]], key: K, number: int) -> None:
    group = groups[key]
    del group[number]
    if not group:
        del groups[key]


def _has_job(state: State, kinds: tuple[str, ...], now: datetime) -> bool:
    return any(
        kind not in state.paused_kinds and state.head_of(kind, now) is not None
        for kind in kinds or tuple(state.lanes)
    )

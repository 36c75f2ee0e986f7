"""``ParkedClaims``: claims that wait for a job, first come, first served.

A claim that finds no job is parked, and costs nothing until there is one: the committer serves
parked claims before it writes, so that a job can be pushed and handed out in one commit. Claims of
the same kinds share a line, so the next claim to serve is found by looking at each line, not at
each claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import TypeVar

from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.operations import Claim
from bucketq.model.state import State

_SWEEP_ABOVE = 64
"""How many timers of claims that were served are kept: sweeping fewer is not worth a sort."""

K = TypeVar("K")
_Timer = tuple[float, int, PendingRequest]


def next_due_s(state: State | None, now: datetime) -> float | None:
    """Return the seconds until a delayed job can be handed out; None: none will be."""
    due = None if state is None or state.paused else state.next_due()
    return None if due is None else (due - now).total_seconds()


class ParkedClaims:
    """The parked claims of one queue."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ...], dict[int, PendingRequest]] = {}
        self._timers: list[_Timer] = []
        self._numbers: dict[int, int] = {}
        """The number of each claim, by its identity."""
        self._copies: dict[str, dict[int, PendingRequest]] = {}
        """The copies of each claim, by its secret: a claim that is sent again may meet itself."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[PendingRequest]:
        """Line by line."""
        for line in self._lines.values():
            yield from line.values()

    def add(self, pending: PendingRequest) -> None:
        """Park a claim, behind all others."""
        claim = _claim(pending)
        self._next += 1
        self._numbers[id(pending)] = self._next
        self._lines.setdefault(claim.kinds, {})[self._next] = pending
        self._copies.setdefault(claim.secret, {})[self._next] = pending
        heappush(self._timers, (pending.until, self._next, pending))
        if len(self._timers) > 2 * len(self._numbers) + _SWEEP_ABOVE:
            self._timers = sorted(timer for timer in self._timers if self._is_parked(timer))

    def discard(self, pending: PendingRequest) -> bool:
        """Remove a claim; return whether it was parked here."""
        number = self._numbers.pop(id(pending), None)
        if number is None:
            return False
        claim = _claim(pending)
        _remove(self._lines, claim.kinds, number)
        _remove(self._copies, claim.secret, number)
        return True

    def withdraw(self, secret: str) -> list[PendingRequest]:
        """Remove and return a claim and its copies."""
        withdrawn = list(self._copies.get(secret, {}).values())
        for pending in withdrawn:
            self.discard(pending)
        return withdrawn

    def next_servable(self, state: State, now: datetime) -> PendingRequest | None:
        """Remove and return the oldest claim for which there is a job.

        Raises:
            ColdRowsNeededError: Rows that decide it have not been read.
        """
        if state.paused or not self._lines:
            return None
        state.attach_cold()
        state.promote(now)
        if state.running.size_bytes >= state.settings.max_running_bytes:
            return None
        heads = sorted((*next(iter(line.items())), kinds) for kinds, line in self._lines.items())
        for _, pending, kinds in heads:
            if _has_job(state, kinds, now):
                self.discard(pending)
                return pending
        return None

    def take_expired(self, now_s: float) -> list[PendingRequest]:
        """Remove and return the claims whose time is over."""
        expired = []
        while (expiry_s := self.next_expiry()) is not None and expiry_s <= now_s:
            pending = heappop(self._timers)[2]
            self.discard(pending)
            expired.append(pending)
        return expired

    def next_expiry(self) -> float | None:
        """Return when the time of the next claim is over, or None."""
        while self._timers and not self._is_parked(self._timers[0]):
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _is_parked(self, timer: _Timer) -> bool:
        return self._numbers.get(id(timer[2])) == timer[1]


def _claim(pending: PendingRequest) -> Claim:
    operation = pending.request.operation
    assert isinstance(operation, Claim), "only claims are parked"  # noqa: S101 - for the types
    return operation


def _remove(groups: dict[K, dict[int, PendingRequest]], key: K, number: int) -> None:
    group = groups[key]
    del group[number]
    if not group:
        del groups[key]


def _has_job(state: State, kinds: tuple[str, ...], now: datetime) -> bool:
    return any(
        kind not in state.paused_kinds and state.bound_of(kind, now) is not None
        for kind in kinds or tuple(state.kinds_waiting())
    )

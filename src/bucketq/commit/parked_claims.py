"""``ParkedClaims``: claims that wait for a job, first come, first served.

A claim that finds no job is parked, and costs nothing until there is one: the committer serves
parked claims before it writes, so that a job can be pushed and handed out in one commit. Claims of
the same kinds share a line, so the next claim to serve is found by looking at each line, not at
each claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TypeVar

from bucketq.commit.parked_timers import ParkedTimers
from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.effects.next_jobs import has_next
from bucketq.model.operations import Claim, Withdraw
from bucketq.model.state import State

K = TypeVar("K")


def next_due_s(state: State | None, now: datetime) -> float | None:
    """Return the seconds until a job that is delayed, or held up by a rate, can be handed out.

    None: there is none.
    """
    due = None if state is None or state.paused else state.next_due()
    return None if due is None else (due - now).total_seconds()


class ParkedClaims:
    """The parked claims of one queue."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ...], dict[int, PendingRequest]] = {}
        self._timers = ParkedTimers()
        self._copies: dict[tuple[str, int], dict[int, PendingRequest]] = {}
        """The copies of each claim, by its secret and its number: a claim that is sent again may
        meet itself."""

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[PendingRequest]:
        """Line by line."""
        for line in self._lines.values():
            yield from line.values()

    def add(self, pending: PendingRequest) -> None:
        """Park a claim, behind all others."""
        claim = _claim(pending)
        number = self._timers.add(pending)
        self._lines.setdefault(claim.kinds, {})[number] = pending
        self._copies.setdefault(_copy_key(pending), {})[number] = pending

    def discard(self, pending: PendingRequest) -> bool:
        """Remove a claim; return whether it was parked here."""
        number = self._timers.remove(pending)
        if number is None:
            return False
        claim = _claim(pending)
        _remove(self._lines, claim.kinds, number)
        _remove(self._copies, _copy_key(pending), number)
        return True

    def put_last(self, workers: Collection[str | None]) -> None:
        """Move claims of workers that fell silent behind all others.

        The claim that has waited longest would get its lost job again, while live workers wait for
        it.
        """
        for pending in [each for each in self if _claim(each).worker in workers]:
            self.discard(pending)
            self.add(pending)

    def withdraw(self, operation: Withdraw) -> list[PendingRequest]:
        """Remove and return a claim and its copies."""
        key = (operation.secret, operation.number)
        withdrawn = list(self._copies.get(key, {}).values())
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
            if has_next(state, kinds, now):
                self.discard(pending)
                return pending
        return None

    def take_expired(self, now_s: float) -> list[PendingRequest]:
        """Remove and return the claims whose time is over."""
        expired = []
        while (pending := self._timers.expired(now_s)) is not None:
            self.discard(pending)
            expired.append(pending)
        return expired

    def next_expiry(self) -> float | None:
        """Return when the time of the next claim is over, or None."""
        return self._timers.next_expiry()


def _claim(pending: PendingRequest) -> Claim:
    operation = pending.request.operation
    assert isinstance(operation, Claim), "only claims are parked"  # noqa: S101 - for the types
    return operation


def _copy_key(pending: PendingRequest) -> tuple[str, int]:
    return _claim(pending).secret, pending.request.number


def _remove(groups: dict[K, dict[int, PendingRequest]], key: K, number: int) -> None:
    group = groups[key]
    del group[number]
    if not group:
        del groups[key]

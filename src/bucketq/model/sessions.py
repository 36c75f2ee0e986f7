"""Which requests of which client have taken effect, so that retries are idempotent.

A client numbers its requests within a session and says, with each, below which number it has
had every answer. What a session holds is therefore only what is still outstanding, and the
whole of it grows with the number of clients, not of jobs.

Sessions are forgotten when they are old or too many. Forgetting leaves a trace, the
**horizon**: the newest version at which a forgotten session was last written. If a request that
can only have been applied after version ``since`` is not found, it was never applied, provided that
the horizon is not above ``since``. Above it the outcome is *unknown*, and the request is never
applied a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any

from msgspec import Struct

from bucketq.model.settings import Settings
from bucketq.model.table import BLOCK_BITS, Table

MISSING: Any = object()

_SWEEP_ABOVE = 64
_MOST_DIGESTS = 1000
"""What a session remembers at most of what its requests asked for: as many as a client may have
under way at once. One answer that stays out holds up the floor, and must not let the row grow."""


class Session(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What is outstanding of one client. Changed in place, and never handed out."""

    id: str
    seq: int
    at: datetime
    """When it was last written, by the clock of its writer."""
    version: int
    """The version of the object that it was last written in."""
    floor: int = 0
    """The client has had the answer of every request below this number."""
    done: list[list[int]] = []
    """Ranges (first, last) of numbers from the floor up that have taken effect."""
    answers: dict[int, Any] = {}
    """Their answers, if they do not follow from the request itself."""
    digests: dict[int, str] = {}
    """A short digest of what each of them asked for, the latest ones, so that a number used again
    for another request is rejected. Requests that older code recorded have none."""

    def find(self, number: int) -> object:
        """The answer that was given to a request, None if it needs none, MISSING if not applied."""
        for first, last in self.done:
            if first <= number <= last:
                return self.answers.get(number)
        return MISSING

    def record(self, number: int, answer: object, digest: str) -> None:
        """Note that a request has taken effect."""
        if answer is not None:
            self.answers[number] = answer
        self.digests[number] = digest
        if len(self.digests) > _MOST_DIGESTS:
            del self.digests[next(iter(self.digests))]
        done = self.done
        if done and done[-1][1] == number - 1:
            done[-1][1] = number
        else:
            done.append([number, number])

    def raise_floor(self, floor: int) -> None:
        """Forget what the client has had the answer of."""
        if floor <= self.floor:
            return
        done, answers = self.done, self.answers
        if len(done) == 1 and done[0][0] <= floor <= done[0][1]:
            done[0][0] = floor
        else:
            self.done = [[max(first, floor), last] for first, last in done if last >= floor]
        self.answers = _from(floor, self.floor, answers)
        self.digests = _from(floor, self.floor, self.digests)
        self.floor = floor


def _from(floor: int, old: int, by_number: dict[int, Any]) -> dict[int, Any]:
    """Drop what lies below a new floor; costs the smaller of what is dropped and what is there."""
    if floor - old > len(by_number):
        return {n: kept for n, kept in by_number.items() if n >= floor}
    for number in range(old, floor):
        by_number.pop(number, None)
    return by_number


class Sessions:
    """The sessions of all clients, and which of them is to be forgotten next.

    If there are too many, that is the one last written in the oldest version, and of several the
    one that began first. Otherwise it is the one with the earliest time, if that is too old: one
    whose client has a clock that is ahead does not keep the others. Both orders follow from the
    rows, so that a state forgets alike before and after a reload.
    """

    __slots__ = ("_by_age", "_by_time", "horizon", "table")

    def __init__(self, rows: Iterable[Session] = (), horizon: int = 0) -> None:
        """Take the sessions that an object holds."""
        self.table = Table(rows)
        self.horizon = horizon
        self._by_age: list[tuple[int, int, str]] = []
        self._by_time: list[tuple[datetime, int, str]] = []
        self._sort()
        self._sort_by_time()

    def __len__(self) -> int:
        """How many sessions are remembered."""
        return len(self.table)

    def get(self, session_id: str) -> Session | None:
        """The session with this id, or None."""
        return self.table.get(session_id)

    def write(
        self,
        session_id: str,
        number: int,
        answer: object,
        digest: str,
        at: datetime,
        *,
        version: int,
        floor: int = 0,
    ) -> None:
        """Note that a request has taken effect in ``version``, and what its client has had."""
        table = self.table
        session = table.by_id.get(session_id)
        is_moved = session is None or session.version != version
        is_later = session is None or session.at != at
        if session is None:
            session = Session(id=session_id, seq=table.next_seq, at=at, version=version)
            table.put(session)
        session.record(number, answer, digest)
        if floor > session.floor:
            session.raise_floor(floor)
        session.at = at
        session.version = version
        table.touched.add(session.seq >> BLOCK_BITS)
        if is_moved:
            heappush(self._by_age, (version, session.seq, session_id))
            if len(self._by_age) > 2 * len(table) + _SWEEP_ABOVE:
                self._sort()
        if is_later:
            heappush(self._by_time, (at, session.seq, session_id))
            if len(self._by_time) > 2 * len(table) + _SWEEP_ABOVE:
                self._sort_by_time()

    def are_stale(self, settings: Settings, now: datetime) -> bool:
        """Whether there is one to be forgotten."""
        return self._stale(settings, now) is not None

    def forget_stale(self, settings: Settings, now: datetime) -> list[str]:
        """Forget sessions that are old or too many; return their ids."""
        forgotten = []
        while (session := self._stale(settings, now)) is not None:
            self.horizon = max(self.horizon, session.version)
            self.table.remove(session.id)
            forgotten.append(session.id)
        return forgotten

    def _stale(self, settings: Settings, now: datetime) -> Session | None:
        """The session to be forgotten next. Entries of those written since are dropped."""
        if len(self.table) > settings.max_sessions:
            return self._oldest()
        while self._by_time:
            at, seq, session_id = self._by_time[0]
            session = self.table.get(session_id)
            if session is not None and (session.at, session.seq) == (at, seq):
                is_old = now - at > timedelta(seconds=settings.session_retention_s)
                return session if is_old else None
            heappop(self._by_time)
        return None

    def _oldest(self) -> Session | None:
        """The session that was last written in the oldest version."""
        while self._by_age:
            version, seq, session_id = self._by_age[0]
            session = self.table.get(session_id)
            if session is not None and (session.version, session.seq) == (version, seq):
                return session
            heappop(self._by_age)
        return None

    def _sort(self) -> None:
        self._by_age = [(row.version, row.seq, row.id) for row in self.table]
        heapify(self._by_age)

    def _sort_by_time(self) -> None:
        self._by_time = [(row.at, row.seq, row.id) for row in self.table]
        heapify(self._by_time)

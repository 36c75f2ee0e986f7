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

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Any

from msgspec import Struct

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.table import BLOCK_BITS, Table
from bucketq.model.settings import Settings

MISSING: Any = object()
"""The request has not been applied, as far as the session knows."""

_MOST_DIGESTS = 1000
"""What a session remembers at most of what its requests asked for: as many as a client may have
under way at once. One answer that stays out holds up the floor, and must not let the row grow."""


Record = tuple[int, object, str]
"""What is remembered of a request: its number, what is stored of its answer, and a digest."""


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

    def is_above(self, number: int) -> bool:
        """Whether no request with this number or a higher one has taken effect."""
        return all(last < number for _, last in self.done)

    def record(self, records: Iterable[Record]) -> None:
        """Note that requests have taken effect."""
        done, answers, digests = self.done, self.answers, self.digests
        for number, answer, digest in records:
            if answer is not None:
                answers[number] = answer
            digests[number] = digest
            if done and done[-1][1] == number - 1:
                done[-1][1] = number
            else:
                done.append([number, number])
        # Together: to find the first entry of a dictionary takes as long as its entries are many
        # that have left before it.
        for number in list(islice(digests, max(0, len(digests) - _MOST_DIGESTS))):
            del digests[number]

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
    if not by_number:
        return by_number
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

    __slots__ = ("_by_time", "_by_version", "horizon", "table")

    def __init__(self, rows: Iterable[Session] = (), horizon: int = 0) -> None:
        self.table = Table(rows)
        self.horizon = horizon
        self._by_version = AgeIndex(self.table.by_id, attrgetter("version"))
        self._by_time = AgeIndex(self.table.by_id, attrgetter("at"))

    def __len__(self) -> int:
        return len(self.table)

    def get(self, session_id: str) -> Session | None:
        """The session with this id, or None."""
        return self.table.get(session_id)

    def has_applied(self, session_id: str, number: int) -> bool:
        """Whether a request is known to have taken effect."""
        session = self.table.by_id.get(session_id)
        return session is not None and session.find(number) is not MISSING

    def write(
        self,
        session_id: str,
        records: Iterable[Record],
        at: datetime,
        *,
        version: int,
        floor: int = 0,
    ) -> None:
        """Note which requests have taken effect in ``version``, and what their client has had."""
        table = self.table
        session = table.by_id.get(session_id)
        is_moved = session is None or session.version != version
        is_later = session is None or session.at != at
        if session is None:
            session = Session(id=session_id, seq=table.next_seq, at=at, version=version)
            table.put(session)
        session.record(records)
        if floor > session.floor:
            session.raise_floor(floor)
        session.at = at
        session.version = version
        table.touched.add(session.seq >> BLOCK_BITS)
        if is_moved:
            self._by_version.add(session)
        if is_later:
            self._by_time.add(session)

    def has_expired(self, settings: Settings, now: datetime) -> bool:
        """Whether there is a session to be forgotten."""
        return self._expired(settings, now) is not None

    def forget_expired(self, settings: Settings, now: datetime) -> list[str]:
        """Forget sessions that are old or too many; return their ids."""
        forgotten = []
        while (session := self._expired(settings, now)) is not None:
            self.horizon = max(self.horizon, session.version)
            self.table.remove(session.id)
            forgotten.append(session.id)
        return forgotten

    def _expired(self, settings: Settings, now: datetime) -> Session | None:
        """The session to be forgotten next, or None."""
        if len(self.table) > settings.max_sessions:
            return self._by_version.first()
        oldest = self._by_time.first()
        retention = timedelta(seconds=settings.session_retention_s)
        return oldest if oldest is not None and now - oldest.at > retention else None

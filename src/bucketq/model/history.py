"""The history of a queue: what each version changed, and which copies of versions are kept.

While history is on, a ``ChangeRecorder`` notes what requests change, and every commit adds a row
that says so: a ``ChangeRecord``. Rows of versions that have landed move to history objects, so that
the queue object stays small. From time to time a copy of a version is put beside the queue, from
which later versions can be rebuilt.

A row shows jobs as ``get`` does, without leases. The payload of a job is in the row of its push.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from bucketq.model.base import Operation
from bucketq.model.indexes.table import Table
from bucketq.model.records import NOTHING, JobRecord
from bucketq.model.settings import Settings

if TYPE_CHECKING:  # It imports this module.
    from bucketq.model.state import Change, State

FEATURE = "history"
"""What an object with a history requires of its readers."""
COPY_VERSIONS = 1024
"""For so many versions a copy may be named after it was made: minutes of a busy queue. A sweep
deletes one that is not named by then."""

UNSET = "unset"
"""The field of a changed job that names those that it no longer has."""
_SECRET = ("lease",)
_SAME = ("id", "seq")
_FIELDS = JobRecord.__struct_fields__
_LEFT_OUT = frozenset((*_SECRET, *_SAME))
_SESSION_BYTES = 4
"""Enough to tell the clients of a queue apart, and not enough to send requests in their names."""

_encode = msgspec.json.Encoder().encode


class ChangeRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What one version changed. Only readers of the history decode the raw parts."""

    id: str
    """The id of the commit."""
    seq: int
    """The version."""
    at: datetime
    """When it was prepared, by the clock of its writer."""
    epoch: int = 0
    requests: Raw = NOTHING
    """Of each request that changed something: verb, client, ids of its jobs and, if known, who
    sent it."""
    jobs: Raw = NOTHING
    """Of each job: ``id``, ``seq``, the fields that were changed (all of a new one), and as
    ``unset`` the names of those that it no longer has."""
    gone: Raw = NOTHING
    """Of each job that left: its id and number."""
    head: Raw = NOTHING
    """Settings and pauses that were changed."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes its line takes."""
        size_bytes = 120 + len(self.requests) + len(self.jobs)
        return size_bytes + len(self.gone) + len(self.head)


class CopyRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A copy of a version that is kept."""

    id: str
    """The version in 20 digits."""
    seq: int
    """The version."""
    at: datetime
    """When that version was written."""
    bytes: int
    crc32: str


class DropChanges(Operation, frozen=True):
    """Remove rows of versions that have landed. Answers how many.

    They are in a history object, or, with ``is_lost``, were given up.
    """

    last: int
    is_lost: bool = False


class NameCopy(Operation, frozen=True):
    """Keep a copy of a version that was put. Answers whether it is kept."""

    copy: CopyRecord
    names: tuple[str, ...]
    """The segments and vectors that it names; they must still be named."""


class ForgetHistory(Operation, frozen=True):
    """Forget what happened before a version. Answers the first version that is left."""

    before: int
    is_asked: bool = False
    """Whether an operator asks for it; otherwise it is too old, or too much."""


def is_asked(operation: Operation) -> bool:
    """Whether an operation that needs no id was still asked for by an operator."""
    return isinstance(operation, ForgetHistory) and operation.is_asked


class ReadChanges(Operation, frozen=True):
    """Read what the versions after one have changed. Answers a ``ChangePage``."""

    after: int
    limit: int = 1000
    """At most this many versions."""


class ReadCopy(Operation, frozen=True):
    """Read a part of the newest copy that is not after a version, or a time. Answers it."""

    version: int
    """Not after this version; 0: any."""
    at: str = ""
    """Not after this time, in ISO 8601; empty: any."""
    part: int = 0


AnyHistory = DropChanges | NameCopy | ForgetHistory | ReadChanges | ReadCopy
HISTORY_CHANGES = (DropChanges, NameCopy, ForgetHistory)
PAST_READS = (ReadChanges, ReadCopy)


class ChangePage(Struct, frozen=True, kw_only=True):
    """What some versions have changed."""

    incarnation: str
    since: int
    """The first version that the history has."""
    version: int
    """The newest version of the queue."""
    changes: tuple[ChangeRecord, ...]
    """Those of the versions that were asked for, without a hole; none: there is no newer one."""


class CopyPart(Struct, frozen=True, kw_only=True):
    """A part of a copy of a version."""

    incarnation: str
    version: int
    at: datetime
    parts: int
    """How many parts the copy has."""
    head: Raw
    """Its settings and pauses."""
    jobs: tuple[JobRecord, ...]


class History:
    """The history of one state, as far as the queue object has it."""

    def __init__(
        self,
        since: int = 0,
        changes: Iterable[ChangeRecord] = (),
        copies: Iterable[CopyRecord] = (),
    ) -> None:
        """Take the rows of a queue object."""
        self.since = since
        """The first version from which on every change is known; 0: history is off."""
        self.changes = Table(changes)
        """Changes that are in no history object yet, or will be removed by the next commit."""
        self.copies = Table(copies)
        self.size_bytes = sum(change.size_bytes for change in self.changes)

    def add(self, change: ChangeRecord) -> None:
        """Add the row of a version."""
        self.changes.put(change)
        self.size_bytes += change.size_bytes

    def drop_changes(self, last: int) -> list[str]:
        """Remove the rows up to a version; return their ids."""
        dropped = []
        for change in list(self.changes):
            if change.seq > last:
                break
            self.changes.remove(change.id)
            self.size_bytes -= change.size_bytes
            dropped.append(change.id)
        return dropped

    def rise(self, since: int) -> None:
        """Forget what happened before a version; a copy of the one before it is still of use."""
        self.since = max(self.since, since)
        self.drop_changes(self.since - 1)
        for copy in list(self.copies):
            if copy.seq < self.since - 1:
                self.copies.remove(copy.id)

    def stop(self) -> None:
        """Forget everything."""
        for copy in list(self.copies):
            self.copies.remove(copy.id)
        last = max((change.seq for change in self.changes), default=0)
        self.drop_changes(last)
        self.since = 0


class ChangeRecorder:
    """Notes what is changed since the last commit was prepared."""

    __slots__ = ("_after", "_before", "_paused", "_requests", "_settings")

    def __init__(self, state: "State") -> None:
        """Begin with a state that was just read or prepared."""
        self._before: dict[int, JobRecord | None] = {}
        self._after: dict[int, JobRecord | None] = {}
        """Each job by its number, as it was and as it is; None: it is not there."""
        self._requests: list[tuple[Any, ...]] = []
        self._settings = state.settings
        self._paused = (state.paused, tuple(state.paused_kinds))

    def add(self, jobs: Iterable[JobRecord]) -> None:
        """Note jobs that are new."""
        for job in jobs:
            self._before[job.seq] = None
            self._after[job.seq] = job

    def replace(self, olds: Mapping[str, JobRecord], jobs: Iterable[JobRecord]) -> None:
        """Note jobs that are changed, and as what they were known by their ids."""
        for job in jobs:
            self._before.setdefault(job.seq, olds[job.id])
            self._after[job.seq] = job

    def remove(self, jobs: Iterable[JobRecord]) -> None:
        """Note jobs that leave."""
        for job in jobs:
            self._before.setdefault(job.seq, job)
            self._after[job.seq] = None

    def note(
        self, operation: Operation, session: str, changes: "Sequence[Change]", by: str
    ) -> None:
        """Note a request that has changed something; moving rows elsewhere does not count."""
        jobs = [row for table, row in changes if table == "jobs"]
        if len(jobs) > 1:
            jobs = list(dict.fromkeys(jobs))
        if not jobs and not session:
            return
        noted = (_verb_of(type(operation)), client_of(session) if session else "", jobs)
        self._requests.append((*noted, by) if by else noted)

    def seal(self, state: "State", commit: str, at: datetime) -> ChangeRecord:
        """Return the row of the version that was just prepared."""
        jobs, gone = list[Any](), list[tuple[str, int]]()
        for seq, after in self._after.items():
            before = self._before[seq]
            if after is None:
                if before is not None:
                    gone.append((before.id, seq))
            elif before is None:
                jobs.append(replace(after, lease=None) if after.lease else after)
            elif len(fields := _changed_fields(before, after)) > len(_SAME):
                jobs.append(fields)
        head = self._changed_head(state)
        return ChangeRecord(
            id=commit,
            seq=state.version,
            at=at,
            epoch=state.epoch,
            requests=Raw(_encode(self._requests)) if self._requests else NOTHING,
            jobs=Raw(_encode(jobs)) if jobs else NOTHING,
            gone=Raw(_encode(gone)) if gone else NOTHING,
            head=Raw(_encode(head)) if head else NOTHING,
        )

    def _changed_head(self, state: "State") -> dict[str, Any]:
        head: dict[str, Any] = {}
        if state.settings != self._settings:
            head["settings"] = state.settings
        if (state.paused, tuple(state.paused_kinds)) != self._paused:
            head["paused"], head["paused_kinds"] = state.paused, tuple(state.paused_kinds)
        return head


def is_wanted(settings: Settings) -> bool:
    """Whether the settings ask for a history."""
    return settings.history_retention_s > 0 and settings.max_format > 1


def seal(state: "State", commit: str, at: datetime | None) -> None:
    """Add the row of a version that is being prepared, if history is on.

    Whether it is on is decided here, by the settings: the first row is that of the version after
    the one that switched it on, because that may have changed more than was noted.
    """
    history, recorder = state.history, state.recorder
    if not is_wanted(state.settings):
        if history.since:
            history.stop()
            state.recorder = None
        return
    if at is None:
        message = f"version {state.version} is part of a history and has no time"
        raise AssertionError(message)
    if recorder is None:
        history.rise(state.version + 1)
        state.requires[FEATURE] = None
    else:
        history.add(recorder.seal(state, commit, at))
    state.recorder = ChangeRecorder(state)


def break_off(state: "State") -> None:
    """Begin the history anew after the next version: what that changes was not noted."""
    state.recorder = None


@cache
def _verb_of(operation_type: type[Operation]) -> str:
    """Return what the history calls an operation; to ask its type each time takes a microsecond."""
    return str(operation_type.__struct_config__.tag)


@lru_cache(maxsize=4096)
def client_of(session: str) -> str:
    """Return what the history calls the client of a session.

    It is not the name of the session: with that, a reader could send requests as that client.
    """
    return blake2b(session.encode(), digest_size=_SESSION_BYTES).hexdigest()


def _changed_fields(before: JobRecord, after: JobRecord) -> dict[str, Any]:
    """Return ``id``, ``seq``, the fields that differ, and as ``unset`` the names of those gone."""
    fields: dict[str, Any] = {"id": after.id, "seq": after.seq}
    unset = []
    for name, old, new in zip(_FIELDS, astuple(before), astuple(after), strict=True):
        if old is new or name in _LEFT_OUT or old == new:
            continue
        if new is None or new is NOTHING:
            unset.append(name)
        else:
            fields[name] = new
    if unset:
        fields[UNSET] = unset
    return fields

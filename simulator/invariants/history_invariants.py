"""The history of a queue: complete, true, and readable for as long as it is kept.

The store knows the order of everything that took effect on all its objects. One pass over that
checks, at every commit and at every put and delete beside the queue:

* From the version before and the row of a version follow its jobs, settings and pauses.
* An object of the history has rows of versions that have landed, and of no others.
* Every version from ``since`` on is in the queue object or in an object of the history.
* A copy that a version lists is in the store, with every segment that it names.
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec
from msgspec import structs

from bucketq.codec.history_file import ChangesName, QueueCopy, copy_name, parse_changes_name
from bucketq.codec.past_state import PastState
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from bucketq.store.queue_folder import folder_of
from bucketq.testing.simulated_store import SimulatedStore, StoreCommit
from simulator.invariants.broker_invariants import Violation
from simulator.invariants.segment_invariants import SegmentTracker, segment_key
from simulator.watched_store import WatchedStore
from simulator.whole_queue import WholeQueue

REPLAYS = "a replay gives the same queue"
LANDED_ROWS = "a history has versions that landed"
NO_HOLE = "a history has no hole"
COPY_WHOLE = "a copy that is kept can be read"

_decode_copy = msgspec.json.Decoder(QueueCopy).decode


class HistoryTracker:
    """The history of one chain of commits, and its segments, checked in one pass."""

    def __init__(self, store: WatchedStore, key: str) -> None:
        """Check the queue object ``key``, its segments and its history."""
        self.segments = SegmentTracker(store, key)
        self.counts = Counter[str]()
        """How many objects were ``put`` and ``deleted``, copies ``copied`` and ``kept``, and how
        often the history was ``cut`` off at its beginning."""
        self._key = key
        folder = re.escape(f"{folder_of('', key)}history/")
        self._pattern = re.compile(folder + r"(?P<incarnation>[^/]+)/(?P<name>[^/]+)")
        self._commits = store.commits
        self._next = 0
        self._stored: dict[str, bytes] = {}
        """The objects in the folder of the queue, with segments."""
        self._ranges: dict[str, ChangesName] = {}
        """Those of them which have changes, and of which versions."""
        self._needed: dict[str, set[str]] = {}
        """Those of them which are copies, and the keys of the segments that they name."""
        self._landed: dict[int, str] = {}
        self._past: PastState | None = None
        self._head: State | None = None
        self._whole: State | None = None
        self.has_changed = False
        """Whether the last commit moved rows, of the queue or of its history."""

    def follow(self, version: int, commit: StoreCommit) -> tuple[WholeQueue, Violation | None]:
        """Check everything up to the next commit of the queue object; return what that holds."""
        queue, reason = self.segments.follow(version, commit)
        return queue, reason or self._follow(version, commit, queue)

    def _follow(self, version: int, commit: StoreCommit, queue: WholeQueue) -> Violation | None:
        reason = self._until(commit.number - 1)
        head, before = queue.head, self._head
        self._landed[version] = head.commits[-1]
        reason = reason or self._check_row(version, queue)
        self._head, self._whole = head, queue.whole
        if before is not None:
            added = version >= head.history.since > 0
            dropped = len(before.history.changes) + added - len(head.history.changes)
            copies = [*before.history.copies] != [*head.history.copies]
            has_risen = before.history.since != head.history.since
            has_moved = self.segments.has_changed
            self.has_changed = dropped > 0 or copies or has_risen or has_moved
            self.counts["cut"] += has_risen and before.history.since > 0
            self.counts["kept"] += len(head.history.copies) > len(before.history.copies)
        return reason or self._check_kept()

    def finish(self) -> Violation | None:
        """Check what happened after the last commit."""
        return self.segments.finish() or self._until(len(self._commits))

    def _check_row(self, version: int, queue: WholeQueue) -> Violation | None:
        """Replay the row of a version on the version before."""
        history, whole = queue.head.history, queue.whole
        if not history.since or version < history.since:
            self._past = None
            return None
        rows = [*history.changes]
        if not rows or (rows[-1].seq, rows[-1].id) != (version, self._landed[version]):
            return REPLAYS, f"version {version} has no row of its own"
        past = self._past
        if past is None:
            past = self._past = _past_of(self._whole)
        past.step(rows[-1])
        if [*past.jobs()] != _shown(whole):
            return REPLAYS, f"the jobs of version {version} are not those of the replay"
        head = (past.settings, past.paused, past.paused_kinds)
        if head != (whole.settings, whole.paused, tuple(whole.paused_kinds)):
            return REPLAYS, f"settings or pauses of version {version} are not those of the replay"
        return None

    def _until(self, number: int) -> Violation | None:
        while self._next < number:
            commit = self._commits[self._next]
            self._next += 1
            if (reason := self._check_write(commit)) is not None:
                return reason
        return None

    def _check_write(self, commit: StoreCommit) -> Violation | None:
        if not commit.key.startswith(folder_of("", self._key)):
            return None
        match = self._pattern.fullmatch(commit.key)
        if commit.body is None:
            if self._stored.pop(commit.key, None) is None:
                return None
            self._ranges.pop(commit.key, None)
            self._needed.pop(commit.key, None)
            self.counts["deleted"] += match is not None
            reason = self._check_kept()
            return reason and (reason[0], f"{reason[1]}, after {commit.writer} deleted an object")
        self._stored[commit.key] = commit.body
        return None if match is None else self._check_put(commit, match["name"], commit.body)

    def _check_put(self, commit: StoreCommit, name: str, body: bytes) -> Violation | None:
        """Check the rows of an object that was put."""
        if (changes := parse_changes_name(name)) is None:
            copy = _decode_copy(body)
            keys = {segment_key(self._key, copy.incarnation, name) for name in copy.names}
            self._needed[commit.key] = keys
            self.counts["copied"] += 1
            return None
        self._ranges[commit.key] = changes
        self.counts["put"] += 1
        for line in body.splitlines():
            row = msgspec.json.decode(line)
            if self._landed.get(row["seq"]) != row["id"]:
                detail = f"{commit.writer} put version {row['seq']} of commit {row['id']}"
                return LANDED_ROWS, detail
        return None

    def _check_kept(self) -> Violation | None:
        """Check that the newest version has all that it keeps."""
        head = self._head
        if head is None or not head.history.since:
            return None
        for copy in head.history.copies:
            key = f"{self._folder(head)}{copy_name(copy.seq)}"
            body = self._stored.get(key)
            if body is None or len(body) != copy.bytes:
                return COPY_WHOLE, f"that of version {copy.seq} is not in the store"
            if missing := self._needed[key] - self._stored.keys():
                return COPY_WHOLE, f"that of version {copy.seq} names {missing}, now deleted"
        version = next((row.seq for row in head.history.changes), head.version + 1) - 1
        folder = self._folder(head)
        found = [changes for key, changes in self._ranges.items() if key.startswith(folder)]
        for first, last, _ in sorted(found, reverse=True):
            if last >= version:
                version = min(version, first - 1)
        if version >= head.history.since:
            return NO_HOLE, f"version {version} is missing at version {head.version}"
        return None

    def _folder(self, head: State) -> str:
        return f"{folder_of('', self._key)}history/{head.incarnation}/"


def named_by_copies(store: SimulatedStore, key: str, head: State) -> set[str]:
    """Return the segments and vectors that copies name which a version keeps."""
    names = set[str]()
    for copy in head.history.copies:
        found = store.peek(f"{folder_of('', key)}history/{head.incarnation}/{copy_name(copy.seq)}")
        if found is not None:
            names |= _decode_copy(found.body).names
    return names


def _past_of(whole: State | None) -> PastState:
    """Return a version as a replay begins with it."""
    past = PastState(whole.version if whole is not None else 0)
    if whole is not None:
        past.add(map(msgspec.json.encode, _shown(whole)))
        past.settings, past.paused = whole.settings, whole.paused
        past.paused_kinds = tuple(whole.paused_kinds)
    return past


def _shown(whole: State) -> list[JobRecord]:
    return [structs.replace(job, lease=None) for job in whole.jobs]

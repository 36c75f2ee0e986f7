"""Segments: rows are in one place, what is named exists, and only what is left over is deleted.

The store knows the order of everything that took effect on all its objects, and when each head was
sent. One pass over that checks, at every commit and at every put and delete of a segment:

* A row is in one place: in the head, or at one position, not gone, of one named segment.
* Before a head is sent, everything that it names is in the store, with that length and checksum;
  and when it lands, it is still there.
* Only a version up to its ``until`` introduces a segment; one that was put under a reservation,
  only the version that removes the reservation.
* The bytes of a segment never change, and are those that its name says.
* A segment is deleted only if no head that may land can name it: the newest head has reached its
  ``until`` (or no longer lists its reservation) and does not name it. What belongs to another
  incarnation is never deleted.
* The state is that of a queue that never spills (``whole_queue``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from hashlib import blake2b, sha256
from zlib import crc32

import msgspec

from bucketq.codec.deletion_vector import is_vector_id
from bucketq.codec.result_index import is_result_index_id
from bucketq.model.segments import SegmentRecord
from bucketq.model.state import State
from bucketq.store.queue_folder import folder_of
from bucketq.testing.simulated_clock import EPOCH
from bucketq.testing.simulated_store import SimulatedStore, StoreCommit
from simulator.invariants.broker_invariants import Violation
from simulator.watched_store import SentHead, WatchedStore
from simulator.whole_queue import WholeQueue, WholeReader

ONE_PLACE = "a row is in one place"
NAMED_EXISTS = "what is named exists"
IN_TIME = "a segment is introduced in time"
SAME_BYTES = "segments never change"
LEFT_OVER = "only what is left over is deleted"
NEVER_SPILLED = "segments change no answer"


class _NamingHead(msgspec.Struct):
    """What a head says of its segments; all other fields are skipped, which is much cheaper."""

    version: int
    incarnation: str
    segments: list[SegmentRecord] = []


_decode_naming = msgspec.json.Decoder(_NamingHead).decode


def segment_key(key: str, incarnation: str, segment_id: str) -> str:
    """Return the key of a segment, a vector or an index of results of the queue object ``key``.

    An empty id gives the folder.
    """
    is_whole = is_vector_id(segment_id) or is_result_index_id(segment_id)
    suffix = "" if not segment_id or is_whole else ".jsonl"
    return f"{folder_of('', key)}segments/{incarnation}/{segment_id}{suffix}"


def _digest(until: str, body: bytes) -> str:
    """Return the digest in the name of a segment; under a reservation it is that of the index."""
    if until.startswith("r"):
        return sha256(body[:-1].rpartition(b"\n")[2] + b"\n").hexdigest()[:16]
    return blake2b(body, digest_size=8).hexdigest()


class SegmentTracker:
    """The segments of one chain of commits, checked in one pass."""

    def __init__(self, store: WatchedStore, key: str) -> None:
        """Check the queue object ``key`` and its segments."""
        self.counts = Counter[str]()
        """How many segments were ``put``, ``introduced``, ``deleted``, and put ``too late`` to be
        named, ``vectors`` among them; how many commits ``merged`` some; and how many
        ``sweepers`` there were."""
        self._sweepers = set[str]()
        self._key = key
        self._pattern = re.compile(
            re.escape(f"{folder_of('', key)}segments/")
            + r"(?P<incarnation>[^/]+)/"
            + r"(?P<id>(?P<until>[0-9]{20}|r[0-9]{20}-[0-9a-f]{16})-(?P<digest>[0-9a-f]{16})"
            + r"(\.gone)?)(?:\.jsonl)?"
        )
        self._commits = store.commits
        self._next = 0
        self._sent = store.sent
        self._next_sent = 0
        self._stored: dict[str, bytes] = {}
        self._put: dict[str, bytes] = {}
        """Every segment that ever was in the store."""
        self._reader = WholeReader(
            lambda incarnation, name: self._put.get(segment_key(key, incarnation, name))
        )
        self._incarnation = ""
        self._version = 0
        self._reserved = set[str]()
        """The reservations that the newest head lists."""
        self._named: dict[str, SegmentRecord] = {}
        """The entry that names each segment or vector."""
        self.has_changed = False
        """Whether the last commit introduced or dropped a segment."""
        self._ever_named = set[str]()

    def follow(self, version: int, commit: StoreCommit) -> tuple[WholeQueue, Violation | None]:
        """Check everything up to the next commit of the queue object; return what that holds."""
        reason = self._until(commit.number - 1)
        queue = self._reader.whole(commit.body or b"", f"version {version}")
        reason = reason or self._check_named(version, commit, queue)
        if reason is None and self._named:
            difference = self._reader.compare(queue, EPOCH + timedelta(seconds=commit.time_s))
            reason = (NEVER_SPILLED, difference) if difference else None
        return queue, reason

    def finish(self) -> Violation | None:
        """Check what happened after the last commit."""
        reason = self._until(len(self._commits))
        for key in self._put:
            match = self._pattern.fullmatch(key)
            is_late = match is not None and self._is_settled(match["until"])
            self.counts["too late"] += is_late and key not in self._ever_named
        self.counts["sweepers"] = len(self._sweepers)
        return reason

    def _until(self, number: int) -> Violation | None:
        """Check heads that were sent, and puts and deletes, up to a write of the store."""
        while True:
            sent = self._sent[self._next_sent] if self._next_sent < len(self._sent) else None
            if sent is not None and sent.commits <= self._next:
                self._next_sent += 1
                reason = self._check_sent(sent)
            elif self._next < number:
                self._next += 1
                reason = self._check_write(self._commits[self._next - 1])
            else:
                return None
            if reason is not None:
                return reason

    def _check_sent(self, sent: SentHead) -> Violation | None:
        """What a head names is there before the head is sent.

        A head that is sent again may be too late: it cannot land, and what it names may be deleted.
        """
        head = _decode_naming(sent.body)
        for name, record in _named_in(head.segments).items():
            key = segment_key(self._key, head.incarnation, name)
            body = self._stored.get(key)
            if body is None and key in self._put and head.version <= self._version:
                continue
            if problem := _misfit(name, record, body):
                detail = f"{name} {problem} when {sent.writer} sent version {head.version}"
                return NAMED_EXISTS, detail
        return None

    def _check_write(self, commit: StoreCommit) -> Violation | None:
        match = self._pattern.fullmatch(commit.key)
        if match is None:
            return None
        who = f"{match['id']} by {commit.writer} at {commit.time_s:.3f} s"
        if commit.body is None:
            del self._stored[commit.key]
            self.counts["deleted"] += 1
            self._sweepers.add(commit.writer)
            problem = self._named_again(**match.groupdict())
            return (LEFT_OVER, f"{who}: {problem}") if problem else None
        if _digest(match["until"], commit.body) != match["digest"]:
            return SAME_BYTES, f"{who}: its bytes are not those that its name says"
        if self._put.get(commit.key, commit.body) != commit.body:
            return SAME_BYTES, f"{who}: it had other bytes before"
        self._stored[commit.key] = self._put[commit.key] = commit.body
        self.counts["put"] += 1
        return None

    def _named_again(self, incarnation: str, id: str, until: str, **_: str) -> str:  # noqa: A002
        """Return why a head that names a segment may land, after it was deleted; "": none may."""
        if incarnation != self._incarnation:
            return f"it is of incarnation {incarnation}"
        if id in self._named:
            return f"version {self._version} names it"
        if not self._is_settled(until):
            return f"a version after {self._version} may introduce it"
        return ""

    def _is_settled(self, until: str) -> bool:
        """Whether no version after the newest may introduce a segment."""
        return _last_version(until) <= self._version and until not in self._reserved

    def _check_named(
        self, version: int, commit: StoreCommit, queue: WholeQueue
    ) -> Violation | None:
        before, self._version = self._named, version
        reserved, self._reserved = self._reserved, set(queue.head.reservations.by_id)
        self._incarnation = queue.head.incarnation
        self._named = _named_by(queue.head)
        for name, record in self._named.items():
            key = segment_key(self._key, self._incarnation, name)
            self._ever_named.add(key)
            if problem := _misfit(name, record, self._stored.get(key)):
                return NAMED_EXISTS, f"{name} {problem} when version {version} landed"
            until = _until_of(name)
            is_adopted = until in reserved and until not in self._reserved
            in_time = is_adopted if until.startswith("r") else version <= int(until)
            if name not in before and not in_time:
                return IN_TIME, f"{name} by {commit.writer}"
            self.counts["adopted"] += name not in before and is_adopted
        if queue.doubled:
            return ONE_PLACE, f"{', '.join(queue.doubled[:5])} by {commit.writer}"
        new, dropped = self._named.keys() - before.keys(), before.keys() - self._named.keys()
        self.has_changed = bool(new or dropped)
        self.counts["introduced"] += len(new)
        self.counts["merged"] += bool(new and dropped)
        self.counts["vectors"] += sum(map(is_vector_id, new))
        return None


def left_over(store: SimulatedStore, key: str, head: State) -> Iterator[str]:
    """Yield the segments and vectors that a sweep would delete now."""
    for found in store.keys(segment_key(key, head.incarnation, "")):
        name = found.rpartition("/")[2].removesuffix(".jsonl")
        until = _until_of(name)
        is_settled = _last_version(until) <= head.version and until not in head.reservations
        is_named = name in _named_by(head) or name in head.results.names()
        if not is_named and is_settled:
            yield found


def _until_of(name: str) -> str:
    """The name of a segment or vector without the digest: a version, or a reservation."""
    return name.removesuffix(".gone").rpartition("-")[0]


def _last_version(until: str) -> int:
    """The version in the name of a segment, or in that of its reservation."""
    return int(until.removeprefix("r")[:20])


def _named_by(state: State) -> dict[str, SegmentRecord]:
    """Return the segments and vectors that a head names, each with its entry."""
    return _named_in([segment.record for segment in state.cold.rows.segments.values()])


def _named_in(records: list[SegmentRecord]) -> dict[str, SegmentRecord]:
    named = {record.id: record for record in records}
    return named | {record.vector: record for record in records if record.vector}


def _misfit(name: str, record: SegmentRecord, body: bytes | None) -> str:
    """Return what is wrong with a segment or vector that a head names; "": nothing."""
    if body is None:
        return "was not in the store"
    if name == record.vector:
        fits = len(body) == record.vector_bytes
    else:
        crc = crc32(body[-record.index :])
        fits = len(body) == record.bytes and f"{crc:08x}" == record.crc32
    return "" if fits else "was not what the head says"

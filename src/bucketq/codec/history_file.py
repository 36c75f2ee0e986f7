"""The objects of a history: what some versions changed, and copies of versions.

Changes are lines, one for each version, as in the queue object. The name of such an object has the
first and the last version, and a digest of the bytes::

    00000000000000000002-00000000000000000641-9f86d081884c7d65.jsonl

A copy is one JSON text: settings, pauses, the entries of the segments that hold jobs, and the other
jobs. It has no leases, sessions, keys or tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple, NoReturn
from zlib import crc32

import msgspec
from msgspec import Raw, Struct, structs

from bucketq.codec.unknown_fields import encode_row, split_fields
from bucketq.errors import CorruptStateError
from bucketq.model.history import ChangeRecord, CopyRecord
from bucketq.model.segments import JOB_CLASSES, SegmentRecord
from bucketq.model.state import State

_NAME = r"(\d{20})-(\d{20})-([0-9a-f]{16})\.jsonl"
_COPY = r"(\d{20})\.head\.json"
_decode_change = msgspec.json.Decoder(ChangeRecord).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class ChangesName(NamedTuple):
    """The name of an object with changes; they sort by their first versions."""

    first: int
    last: int
    digest: str

    def __str__(self) -> str:
        """Return the name as a part of a key."""
        return f"{self.first:020d}-{self.last:020d}-{self.digest}.jsonl"


class QueueCopy(Struct, frozen=True, kw_only=True):
    """A copy of a version, as it is written; unknown fields are ignored."""

    version: int
    commit: str
    incarnation: str
    at: datetime
    next_seq: int
    settings: Raw
    paused: bool
    paused_kinds: list[str]
    segments: list[SegmentRecord] = []
    jobs: list[Raw] = []

    @property
    def names(self) -> set[str]:
        """The segments and vectors that it names."""
        vectors = {segment.vector for segment in self.segments if segment.vector}
        return vectors | {segment.id for segment in self.segments}

    @property
    def head(self) -> bytes:
        """Its settings and pauses."""
        names = ("settings", "paused", "paused_kinds")
        return _encode({name: getattr(self, name) for name in names})


def parse_changes_name(name: str) -> ChangesName | None:
    """Return what the name of an object says; None: it is not one with changes."""
    found = re.fullmatch(_NAME, name)
    return None if found is None else ChangesName(int(found[1]), int(found[2]), found[3])


def parse_copy_name(name: str) -> int | None:
    """Return the version of which an object is a copy; None: it is not a copy."""
    found = re.fullmatch(_COPY, name)
    return None if found is None else int(found[1])


def copy_name(version: int) -> str:
    """Return the name of the copy of a version."""
    return f"{version:020d}.head.json"


def encode_changes(changes: Sequence[ChangeRecord]) -> tuple[ChangesName, bytes]:
    """Encode rows of consecutive versions, at least one."""
    return name_changes([encode_row(change, None) for change in changes], changes[0].seq)


def name_changes(lines: Sequence[bytes], first: int) -> tuple[ChangesName, bytes]:
    """Put lines of consecutive versions together; ``first`` is the first of the versions."""
    body = b"".join(line + b"\n" for line in lines)
    digest = blake2b(body, digest_size=8).hexdigest()
    return ChangesName(first, first + len(lines) - 1, digest), body


def cut_changes(name: ChangesName, lines: Sequence[bytes], since: int) -> tuple[ChangesName, bytes]:
    """Return the lines of an object from a version on, which is not its first, as another object.

    The first line says what it was cut from, so that its name is unlike that of any object which
    has the same versions.
    """
    first, *rest = lines[since - name.first :]
    return name_changes([first[:-1] + b',"cut":"%s"}' % name.digest.encode(), *rest], since)


def split_changes(name: ChangesName, body: bytes, where: str) -> list[bytes]:
    """Return the lines of an object, one for each version.

    Raises:
        CorruptStateError: It is not the object that its name says.
    """
    lines = body[:-1].split(b"\n")
    is_right = blake2b(body, digest_size=8).hexdigest() == name.digest
    if not is_right or len(lines) != name.last - name.first + 1:
        _refuse(where, "its bytes are not those that its name says")
    return lines


def decode_changes(lines: Iterable[bytes], where: str) -> list[ChangeRecord]:
    """Decode rows; fields that this code does not know are left out.

    Raises:
        CorruptStateError: One of them is not a row of a history.
    """
    rows = []
    for line in lines:
        try:
            rows.append(_decode_line(line))
        except (msgspec.MsgspecError, ValueError) as error:
            _refuse(where, f"one of its lines cannot be decoded ({error})")
    return rows


def _decode_line(line: bytes) -> ChangeRecord:
    try:
        return _decode_change(line)
    except msgspec.ValidationError:
        known, _ = split_fields(_decode_fields(line), ChangeRecord)
        return _decode_change(_encode(known))


def encode_copy(state: State, at: datetime) -> tuple[CopyRecord, bytes, set[str]]:
    """Encode a version to which nothing was applied since; return also what it names."""
    named = state.cold.rows.segments.values()
    # As in the queue object: another process may copy the same version.
    entries = sorted((each.entry() for each in named), key=attrgetter("order"))
    segments = [entry for entry in entries if entry.cls in JOB_CLASSES]
    copy = QueueCopy(
        version=state.version,
        commit=state.commits[-1],
        incarnation=state.incarnation,
        at=at,
        next_seq=state.next_seq,
        settings=Raw(encode_row(state.settings, None)),
        paused=state.paused,
        paused_kinds=list(state.paused_kinds),
        segments=segments,
        jobs=[
            Raw(encode_row(structs.replace(job, lease=None), state.extra.get(("jobs", job.id))))
            for job in state.jobs
        ],
    )
    body = _encode(copy) + b"\n"
    name, crc = f"{state.version:020d}", f"{crc32(body):08x}"
    record = CopyRecord(id=name, seq=state.version, at=at, bytes=len(body), crc32=crc)
    return record, body, copy.names


def decode_copy(record: CopyRecord, body: bytes, where: str) -> QueueCopy:
    """Decode a copy.

    Raises:
        CorruptStateError: It is not the copy that the queue names.
    """
    if len(body) != record.bytes or f"{crc32(body):08x}" != record.crc32:
        _refuse(where, "its bytes are not those that the queue names")
    try:
        return msgspec.json.decode(body, type=QueueCopy)
    except msgspec.MsgspecError as error:
        _refuse(where, f"it cannot be decoded ({error})")


def _refuse(where: str, reason: str) -> NoReturn:
    message = (
        f"{where} cannot be trusted: {reason}; the queue itself is not affected, only its history"
    )
    raise CorruptStateError(message)

"""Reading ``queue.json``: validate everything, name the line of an error, keep unknown fields.

A damaged object is never mistaken for an empty queue, and never overwritten.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar, get_args
from zlib import crc32

import msgspec
from msgspec import Raw, Struct, structs

from bucketq.codec.document import Document
from bucketq.codec.layout import END, FORMAT, OPENINGS, REQUIRED, TABLES
from bucketq.codec.table_checks import (
    check_batches,
    check_consumers,
    check_history,
    check_jobs,
    check_limits,
    check_partition,
    check_results,
    check_schedules,
    check_segments,
    check_sessions,
    check_times,
)
from bucketq.codec.unknown_fields import split_fields
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.audit_records import AuditRecord
from bucketq.model.history import FEATURE, ChangeRecord, ChangeRecorder, CopyRecord, History
from bucketq.model.indexes.result_table import ResultTable
from bucketq.model.indexes.table import Table
from bucketq.model.indexes.worker_table import WorkerTable
from bucketq.model.job_batches import FEATURE as BATCHES
from bucketq.model.job_batches import BatchRecord, Callback
from bucketq.model.limits import FEATURE as LIMITS
from bucketq.model.limits import BucketRecord, LimitRecord
from bucketq.model.numbered_batches import ConsumerRecord, WriterRecord
from bucketq.model.partitions import Partition
from bucketq.model.records import NOTHING, AgreedTime, BrokerRecord, JobRecord, KeyRecord
from bucketq.model.requests.sessions import Session, Sessions
from bucketq.model.reservations import ReservationRecord
from bucketq.model.results import ResultRow
from bucketq.model.schedules import FEATURE as SCHEDULES
from bucketq.model.schedules import ScheduleRecord
from bucketq.model.segments import CONSECUTIVE, SegmentRecord
from bucketq.model.settings import Settings, changed
from bucketq.model.state import State
from bucketq.model.tokens import TokenRecord
from bucketq.model.worker_records import WorkerRecord

_FIRST_LINE = re.compile(
    rb'\{"format":(\d{1,9}),"checksum":"crc32:([0-9a-f]{8})","bytes":(\d{1,18}),\n'
)
_FORMAT = re.compile(rb'\s*\{\s*"format"\s*:\s*(-?\d{1,18})\s*[,}]')
_BYTE = r"\(byte (\d+)\)"
_RESTORE = "see that the address is right, and bring back a copy with `bucketq restore --replace`"
_ACCEPT = (
    "look at it and accept it as it is with `bucketq repair --accept`, or bring back a copy with "
    "`bucketq restore --replace`"
)
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What bytes that are not a queue can raise while they are read."""

_T = TypeVar("_T")
_Extra = dict[tuple[str, str], dict[str, Raw]]


class _ObjectFields(Struct, kw_only=True, forbid_unknown_fields=True):
    format: int
    checksum: str = ""
    bytes: int = 0
    version: int
    commit: str
    incarnation: str
    requires: list[str] = []
    former: list[str] = []
    partition: Partition | None = None
    created_at: datetime
    broker: BrokerRecord | None
    settings: Settings
    paused: bool
    paused_kinds: list[str]
    next_seq: int
    horizon: int
    time: AgreedTime | None = None
    since: int = 0
    last_served: list[tuple[str, int, str]] = []
    commits: list[str]
    sessions: list[Session]
    keys: list[KeyRecord]
    tokens: list[TokenRecord] = []
    consumers: list[ConsumerRecord] = []
    writers: list[WriterRecord] = []
    schedules: list[ScheduleRecord] = []
    limits: list[LimitRecord] = []
    buckets: list[BucketRecord] = []
    batches: list[BatchRecord] = []
    audit: list[AuditRecord] = []
    workers: list[WorkerRecord] = []
    results: list[ResultRow] = []
    reservations: list[ReservationRecord] = []
    segments: list[SegmentRecord] = []
    heads: list[CopyRecord] = []
    changes: list[ChangeRecord] = []
    jobs: list[JobRecord]


class _Requirements(Struct):
    """What an object of format 2 requires of its readers."""

    requires: list[str] = []


class _Probe(Struct):
    """An object of any format."""

    format: int


_decoder = msgspec.json.Decoder(_ObjectFields)
_syntax = msgspec.json.Decoder(Raw)
_ROWS: dict[str, type[Struct]] = {
    field.name: get_args(field.type)[0]
    for field in structs.fields(_ObjectFields)
    if field.name in OPENINGS
}
"""The type of the rows of each table."""


def decode(body: bytes, where: str, *, accept: bool = False) -> Document:
    """Read an object; ``where`` is what an error calls it.

    Args:
        body: The object's bytes.
        where: Its address, for messages.
        accept: Accept content that a person has edited or formatted; it must still be valid.

    Raises:
        NewerFormatError: A newer bucketq wrote it.
        CorruptStateError: It is not an object that bucketq wrote.
    """
    check_format(body, where)
    if not accept:
        check_frame(body, where)
    extra: _Extra = {}
    try:
        if not body.isascii():
            body.decode()
        if accept:
            # One job is one line: no payload keeps line breaks between its values.
            body = msgspec.json.format(body, indent=-1)
        found = _read(body, extra)
        if accept:
            changed(Settings(), structs.asdict(found.settings))
        state = _build(found)
    except _UNREADABLE as error:
        _refuse(where, _place(body, error))
    state.extra = extra
    state.size_bytes = len(body)
    document = Document(state)
    document.adopt(body)
    return document


def check_format(body: bytes, where: str) -> None:
    """Refuse a format that this code does not know, whatever the rest looks like."""
    written = _FORMAT.match(body)
    try:
        number = int(written[1]) if written else msgspec.json.decode(body, type=_Probe).format
    except _UNREADABLE:
        return  # It has no format, and will be refused for what it is.
    if number > FORMAT:
        raise NewerFormatError(
            f"{where} has format {number}, this bucketq knows formats up to {FORMAT}: "
            "upgrade bucketq; the object is left as it is"
        )
    if number < 1:
        _refuse(where, f"there is no format {number}")
    if number > 1:
        _check_required(body, where)


def _check_required(body: bytes, where: str) -> None:
    """Refuse an object that requires something of its readers which this code does not know."""
    try:
        required = msgspec.json.decode(body, type=_Requirements).requires
    except _UNREADABLE:
        return  # It will be refused for what it is.
    unknown = [name for name in required if name not in REQUIRED]
    if unknown:
        raise NewerFormatError(
            f"{where} requires {', '.join(unknown)}, which this bucketq does not know: upgrade "
            "bucketq; the object is left as it is"
        )


def check_frame(body: bytes, where: str) -> None:
    """Check the first line, and what it says of the rest."""
    first = _FIRST_LINE.match(body)
    if first is None:
        _refuse(where, _why_not_ours(body), is_acceptable=_is_acceptable(body))
    rest_bytes = len(body) - first.end()
    if rest_bytes < int(first[3]) and not body.endswith(END):
        _refuse(
            where,
            f"truncated at byte {len(body)}: {int(first[3])} bytes should follow the first "
            f"line, {rest_bytes} do",
        )
    checksum = crc32(memoryview(body)[first.end() :])
    if rest_bytes != int(first[3]) or checksum != int(first[2], 16):
        broken = _where_json_breaks(body)
        _refuse(
            where,
            f"changed by hand or damaged: the first line promises {int(first[3])} bytes with "
            f"checksum {first[2].decode()}, found are {rest_bytes} with {checksum:08x}"
            f"{f' ({broken})' if broken else ''}",
            is_acceptable=not broken and _is_acceptable(body),
        )


def _is_acceptable(body: bytes) -> bool:
    """Whether `repair --accept` would accept it; otherwise the error must not recommend it."""
    try:
        decode(body, "", accept=True)
    except CorruptStateError:
        return False
    return True


def _why_not_ours(body: bytes) -> str:
    if not body:
        return "it is empty"
    broken = _where_json_breaks(body)
    if broken:
        return broken
    try:
        msgspec.json.decode(body, type=_Probe)
    except _UNREADABLE:
        return "it is JSON, but not a bucketq queue"
    return "changed by hand: its first line is not as bucketq writes it"


def _where_json_breaks(body: bytes) -> str:
    try:
        body.decode()
        _syntax.decode(body)
    except _UNREADABLE as error:
        return _place(body, error)
    return ""


def _place(body: bytes, error: Exception) -> str:
    """Describe what is wrong and, if it is the JSON, on which line."""
    text = str(error) or type(error).__name__
    found = re.search(_BYTE, text)
    if isinstance(error, UnicodeDecodeError):
        at = error.start
    elif found is not None:
        at = int(found[1])
    elif isinstance(error, RecursionError):
        return "nested too deeply"
    elif isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        at = len(body)
    else:
        return text
    line = body.count(b"\n", 0, at) + 1
    column = at - (body.rfind(b"\n", 0, at) + 1) + 1
    return f"not valid JSON at line {line}, column {column}: {text}"


def _read(body: bytes, extra: _Extra) -> _ObjectFields:
    """Read the content; fields that this code does not know go to ``extra``."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError:
        return _read_with_unknown(body, extra)


def _read_with_unknown(body: bytes, extra: _Extra) -> _ObjectFields:
    """Set unknown fields aside, then read again; what is wrong otherwise is found by that."""
    known = _split(
        msgspec.json.decode(body, type=dict[str, Raw]), _ObjectFields, ("head", ""), extra
    )
    for name, shape in (("settings", Settings), ("broker", BrokerRecord)):
        fields = _get(known, name, dict[str, Raw])
        if fields is not None:
            slot = (name, _get(fields, "id", str) or "" if name == "broker" else "")
            known[name] = Raw(msgspec.json.encode(_split(fields, shape, slot, extra)))
    for name in OPENINGS:
        rows = _get(known, name, list[dict[str, Raw]])
        if rows is not None:
            split = [
                _split(row, _ROWS[name], (name, _get(row, "id", str) or ""), extra) for row in rows
            ]
            known[name] = Raw(msgspec.json.encode(split))
    return _decoder.decode(msgspec.json.encode(known))


def _get(fields: dict[str, Raw], name: str, shape: type[_T]) -> _T | None:
    """Return the value of a field, or None if it is missing or of another type."""
    try:
        return msgspec.json.decode(fields.get(name, b"null"), type=shape)
    except msgspec.ValidationError:
        return None


def _split(
    fields: dict[str, Raw], shape: type[Struct], slot: tuple[str, str], extra: _Extra
) -> dict[str, Raw]:
    """Return the fields that ``shape`` has, and keep the others in ``extra``."""
    known, unknown = split_fields(fields, shape)
    if unknown:
        extra[slot] = unknown
    return known


def _build(found: _ObjectFields) -> State:
    """Make the state. Raises ``ValueError`` on what the types do not say but the model needs."""
    if found.version < 1 or not found.commits or found.commits[-1] != found.commit:
        raise ValueError(f"version {found.version} does not fit its commits")
    if (found.format == 1) is bool(found.requires) or (found.segments and not found.requires):
        raise ValueError(f"format {found.format} does not fit what it requires")
    if found.since and FEATURE not in found.requires:
        raise ValueError(f"it has a history, and does not require {FEATURE!r}")
    if found.schedules and found.requires and SCHEDULES not in found.requires:
        raise ValueError(f"it has schedules, and does not require {SCHEDULES!r}")
    if any(each.first_id for each in found.segments) and CONSECUTIVE not in found.requires:
        raise ValueError(
            f"a segment has a first_id, and the object does not require {CONSECUTIVE!r}"
        )
    if found.limits and found.requires and LIMITS not in found.requires:
        raise ValueError(f"it has limits, and does not require {LIMITS!r}")
    if found.batches and found.requires and BATCHES not in found.requires:
        raise ValueError(f"it has batches, and does not require {BATCHES!r}")
    check_partition(found.partition, found.requires)
    check_history(found.since, found.version, found.changes, found.heads)
    check_segments(found.segments, found.next_seq)
    check_sessions(found.sessions)
    check_consumers(found.consumers)
    check_schedules(found.schedules)
    check_limits(found.limits, found.buckets)
    check_batches(found.batches)
    check_results(found.results)
    check_jobs(found.jobs, found.next_seq)
    check_times(found)
    _detach(found.jobs)
    _detach_payloads(found.schedules)
    _detach_payloads([batch.on_done for batch in found.batches if batch.on_done is not None])
    try:
        sessions = Sessions(found.sessions, found.horizon)
        state = State(
            incarnation=found.incarnation,
            created_at=found.created_at,
            jobs=found.jobs,
            keys=found.keys,
            tokens=found.tokens,
            consumers=found.consumers,
            writers=found.writers,
            schedules=found.schedules,
            limits=found.limits,
            buckets=found.buckets,
            batches=found.batches,
            reservations=found.reservations,
            segments=found.segments,
        )
    except ValueError:
        _check_order(found)
        raise
    state.requires = dict.fromkeys(found.requires)
    state.former, state.partition = dict.fromkeys(found.former), found.partition
    state.sessions = sessions
    state.commits.extend(found.commits)
    state.version, state.broker = found.version, found.broker
    state.settings = found.settings
    state.paused, state.paused_kinds = found.paused, dict.fromkeys(found.paused_kinds)
    state.next_seq = found.next_seq
    state.time = found.time
    state.audit, state.results = Table(found.audit), ResultTable(found.results)
    state.workers = WorkerTable(found.workers)
    state.waiting.turns.last_served = {
        (kinds, priority): group for kinds, priority, group in found.last_served
    }
    if found.since:
        state.history = History(found.since, map(_detached, found.changes), found.heads)
        state.recorder = ChangeRecorder(state)
    return state


def _detached(change: ChangeRecord) -> ChangeRecord:
    """Free a row from the bytes that it was read from, which it outlives."""
    parts = {name: getattr(change, name) for name in ("requests", "jobs", "gone", "head")}
    kept = {name: part.copy() for name, part in parts.items() if part is not NOTHING}
    return structs.replace(change, **kept)


def _detach(jobs: list[JobRecord]) -> None:
    """Free jobs from the bytes that they were read from, which they outlive.

    The parser leaves payloads as views, of which one keeps the whole object in memory, and makes
    the name of a kind again for every job. Records never change; these were made a moment ago, and
    no other code has seen them.
    """
    kinds: dict[str, str] = {}
    for job in jobs:
        structs.force_setattr(job, "kind", kinds.setdefault(job.kind, job.kind))
        structs.force_setattr(job, "payload", job.payload.copy())
        if job.result is not NOTHING:
            structs.force_setattr(job, "result", job.result.copy())


def _detach_payloads(rows: Sequence[ScheduleRecord | Callback]) -> None:
    for row in rows:
        structs.force_setattr(row, "payload", row.payload.copy())


def _check_order(found: _ObjectFields) -> None:
    """Name the row that is out of order, or there twice."""
    for name in TABLES:
        seen: dict[str, int] = {}
        last = -1
        for index, row in enumerate(_rows(found, name)):
            if row.id in seen:
                raise ValueError(
                    f"{name}[{index}] has the id of {name}[{seen[row.id]}], {row.id!r}"
                )
            if row.seq <= last:
                raise ValueError(
                    f"{name}[{index}] ({row.id}): number {row.seq} follows number {last}"
                )
            seen[row.id], last = index, row.seq


def _rows(found: _ObjectFields, table: str) -> list[Any]:
    rows: list[Any] = getattr(found, table)
    return rows


def _refuse(where: str, reason: str, *, is_acceptable: bool = False) -> NoReturn:
    advice = f"the object is left as it is; {_ACCEPT if is_acceptable else _RESTORE}"
    raise CorruptStateError(f"{where} is not a queue that can be trusted: {reason}; {advice}")

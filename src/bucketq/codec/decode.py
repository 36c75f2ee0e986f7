"""Reading ``queue.json``: trust nothing, name the place, keep what is not known.

Whatever is wrong with an object, it is never taken for an empty queue and never overwritten.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NoReturn
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from bucketq.codec.document import Document
from bucketq.codec.layout import FORMAT, TABLES
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.job import BrokerRecord, JobRecord, KeyRecord
from bucketq.model.sessions import Session, Sessions
from bucketq.model.settings import Settings
from bucketq.model.state import RING_LENGTH, State

_FIRST_LINE = re.compile(
    rb'\{"format":(\d{1,9}),"checksum":"crc32:([0-9a-f]{8})","bytes":(\d{1,18}),\n'
)
_FORMAT = re.compile(rb'\s*\{\s*"format"\s*:\s*(\d{1,9})\s*[,}]')
_BYTE = re.compile(r"\(byte (\d+)\)|at `\$(.*?)`")
_REPAIR = (
    "the object is left as it is; restore a copy of it, or look at it and accept it as it is "
    "with `bucketq repair --accept`"
)


class _Object(Struct, kw_only=True, forbid_unknown_fields=True):
    format: int
    checksum: str
    bytes: int
    version: int
    commit: str
    incarnation: str
    created_at: datetime
    broker: BrokerRecord | None
    settings: Settings
    paused: bool
    paused_kinds: list[str]
    next_seq: int
    horizon: int
    commits: list[str]
    sessions: list[Session]
    keys: list[KeyRecord]
    jobs: list[JobRecord]


_decoder = msgspec.json.Decoder(_Object)
_ROWS: dict[str, type[Struct]] = {"sessions": Session, "keys": KeyRecord, "jobs": JobRecord}


def decode(body: bytes, where: str, *, accept: bool = False) -> Document:
    """Read an object; ``where`` is what an error calls it.

    Args:
        body: The object's bytes.
        where: Its address, for messages.
        accept: Take the content as it is though length or checksum say that it was changed.

    Raises:
        NewerFormatError: A newer bucketq wrote it.
        CorruptStateError: It is not an object that bucketq wrote.
    """
    _check_frame(body, where, accept=accept)
    extra: dict[tuple[str, str], dict[str, Raw]] = {}
    try:
        found = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if not isinstance(error, msgspec.ValidationError):
            _refuse(where, _place(body, error))
        try:
            found = _decode_with_unknown(body, extra)
        except msgspec.MsgspecError as second:
            _refuse(where, _place(body, second))
    state = _build(found, where)
    state.extra = extra
    state.size_bytes = len(body)
    document = Document(state)
    document.adopt(body)
    return document


def _check_frame(body: bytes, where: str, *, accept: bool) -> None:
    """Check the first line, and what it says of the rest."""
    written = _FORMAT.match(body)
    if written is not None and int(written[1]) > FORMAT:
        message = (
            f"{where} has format {int(written[1])}, this bucketq knows formats up to {FORMAT}: "
            "upgrade bucketq; the object is left as it is"
        )
        raise NewerFormatError(message)
    if written is not None and int(written[1]) < 1:
        _refuse(where, f"there is no format {int(written[1])}")
    if accept:
        return
    first = _FIRST_LINE.match(body)
    if first is None:
        _refuse(where, _why_not_ours(body))
    rest_bytes = len(body) - first.end()
    if rest_bytes < int(first[3]):
        _refuse(
            where,
            f"truncated at byte {len(body)}: {int(first[3])} bytes should follow the first "
            f"line, {rest_bytes} do",
        )
    checksum = crc32(memoryview(body)[first.end() :])
    if rest_bytes != int(first[3]) or checksum != int(first[2], 16):
        _refuse(
            where,
            f"changed by hand or damaged: the first line promises {int(first[3])} bytes with "
            f"checksum {first[2].decode()}, found are {rest_bytes} with {checksum:08x}"
            f"{_where_json_breaks(body)}",
        )


def _why_not_ours(body: bytes) -> str:
    if not body:
        return "it is empty"
    try:
        content = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return _place(body, error)
    if isinstance(content, dict) and "format" in content:
        return "changed by hand: its first line is not as bucketq writes it"
    return "it is JSON, but not a bucketq queue"


def _where_json_breaks(body: bytes) -> str:
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return f" ({_place(body, error)})"
    return ""


def _place(body: bytes, error: Exception) -> str:
    """Name what is wrong and the line on which it is."""
    text = str(error) or type(error).__name__
    found = _BYTE.search(text)
    if found is None or found[1] is None:
        return f"not readable: {text}"
    at = int(found[1])
    line = body.count(b"\n", 0, at) + 1
    column = at - (body.rfind(b"\n", 0, at) + 1) + 1
    return f"not valid JSON at line {line}, column {column}: {text}"


def _decode_with_unknown(body: bytes, extra: dict[tuple[str, str], dict[str, Raw]]) -> _Object:
    """Read an object that has fields which this code does not know, and set them aside."""
    fields: dict[str, Raw] = msgspec.json.decode(body, type=dict[str, Raw])
    known = _split(fields, _Object, ("head", ""), extra)
    for name, shape in (("settings", Settings), ("broker", BrokerRecord)):
        if name in known and bytes(known[name]).strip() != b"null":
            inner = msgspec.json.decode(known[name], type=dict[str, Raw])
            split = _split(inner, shape, (name, ""), extra)
            known[name] = Raw(msgspec.json.encode(split))
    for name in TABLES:
        rows = []
        for row in msgspec.json.decode(known.get(name, Raw(b"[]")), type=list[dict[str, Raw]]):
            row_id = msgspec.json.decode(row.get("id", Raw(b'""')), type=str)
            rows.append(_split(row, _ROWS[name], (name, row_id), extra))
        known[name] = Raw(msgspec.json.encode(rows))
    return _decoder.decode(msgspec.json.encode(known))


def _split(
    fields: dict[str, Raw],
    shape: type[Struct],
    slot: tuple[str, str],
    extra: dict[tuple[str, str], dict[str, Raw]],
) -> dict[str, Raw]:
    """Return the fields that ``shape`` has, and keep the others in ``extra``."""
    unknown = {
        name: Raw(msgspec.json.format(bytes(value), indent=-1))
        for name, value in fields.items()
        if name not in shape.__struct_fields__
    }
    if unknown:
        extra[slot] = unknown
    return {name: value for name, value in fields.items() if name not in unknown}


def _build(found: _Object, where: str) -> State:
    """Make the state, checking what the types do not say."""
    if found.version < 1 or not found.commits or found.commits[-1] != found.commit:
        _refuse(where, f"version {found.version} does not fit its commits")
    state = State(incarnation=found.incarnation, created_at=found.created_at)
    state.version = found.version
    state.commits.extend(found.commits[-RING_LENGTH:])
    state.broker = found.broker
    state.settings = found.settings
    state.paused = found.paused
    state.paused_kinds = dict.fromkeys(found.paused_kinds)
    state.next_seq = found.next_seq
    try:
        state.sessions = Sessions(found.sessions, found.horizon)
        state.restore(found.jobs, found.keys)
    except ValueError as error:
        _refuse(where, str(error))
    _check_jobs(found.jobs, found.next_seq, where)
    return state


def _check_jobs(jobs: list[JobRecord], next_seq: int, where: str) -> None:
    if jobs and jobs[-1].seq >= next_seq:
        _refuse(where, f"job {jobs[-1].id} has number {jobs[-1].seq}, beyond {next_seq - 1}")
    for index, job in enumerate(jobs):
        if job.status == "running" and (job.lease is None or job.worker is None):
            _refuse(where, f"jobs[{index}] ({job.id}) is running without a lease and a worker")


def _refuse(where: str, reason: str) -> NoReturn:
    message = f"{where} is not a queue that can be trusted: {reason}; {_REPAIR}"
    raise CorruptStateError(message)

"""Encodes rows as jobs: from Arrow batches to lines of JSON that can be staged.

A job's id follows from the write, the partition and the row, so that writing the same rows again
pushes the same jobs.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from io import BytesIO
from itertools import islice, repeat
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw

from bucketq.base32 import crockford
from bucketq.commit.request_ids import RequestId
from bucketq.errors import PayloadError, RejectedError
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.records import Encoding
from bucketq.model.settings import Settings
from bucketq.queue import payload as payloads
from bucketq.spark.table.arrow_values import in_utc, values_of
from bucketq.spark.table.write_columns import WriteColumns

_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_ID_LENGTH = 26
_BLANKS = " \t\n\r"
_NULL = b"null"
_encode_lines = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(NewJob).decode


class EncodedRows(msgspec.Struct):
    """The rows of a partition as lines of JSON, and the size of each payload in bytes."""

    body: bytes
    sizes: array[int]


def encode_rows(
    batches: Iterable[pa.RecordBatch],
    columns: WriteColumns,
    settings: Settings,
    write_id: str,
    partition: int,
) -> EncodedRows:
    """Encode the rows of a partition. Raises ``RejectedError`` that names a wrong row."""
    ids = RequestId(_session(write_id), partition).job_ids()
    lines: list[bytes] = []
    sizes = array("I")
    for each in batches:
        # One for every row, also if it has its own: a row's id must not depend on other rows.
        some, batch = list(islice(ids, each.num_rows)), in_utc(each)
        encoded = encode_fast(batch, columns, settings, some)
        if encoded is None:
            encoded = encode_each(batch, columns, settings, some, (len(sizes), partition))
        lines.append(encoded.body)
        sizes.extend(encoded.sizes)
    return EncodedRows(b"".join(lines), sizes)


def encode_fast(
    batch: pa.RecordBatch, columns: WriteColumns, settings: Settings, ids: list[str]
) -> EncodedRows | None:
    """Encode rows that have only a kind and a payload, as most do, without a ``NewJob`` for each.

    That is twice as fast. Returns None if it cannot, even for one row; ``encode_each`` then encodes
    the batch, and names the row that is wrong if there is one.
    """
    if columns.form == "bytes" or not columns.fields.keys() <= {"kind"}:
        return None
    limit = settings.max_payload_bytes
    try:
        kinds: list[Any] = [columns.kind] * batch.num_rows
        if "kind" in columns.fields:
            kinds = values_of(batch.column(columns.fields["kind"]))
        for kind in set(kinds):
            check.kind(kind)
        bodies = [raw for raw, _ in _payloads(batch, columns)]
        sizes = [check.body(raw, "payload", "max_payload_bytes", limit) for raw in bodies]
    except RejectedError:
        return None
    # Ids and kinds have no characters that JSON escapes.
    lines = [
        b'{"id":"%b","kind":"%b","payload":%b}\n' % row
        for row in zip(map(str.encode, ids), map(str.encode, kinds), bodies, strict=True)
    ]
    return EncodedRows(b"".join(lines), array("I", sizes))


def encode_each(
    batch: pa.RecordBatch,
    columns: WriteColumns,
    settings: Settings,
    ids: list[str],
    place: tuple[int, int],
) -> EncodedRows:
    """Encode rows one by one; ``place`` is the number of the first, and its partition."""
    number, partition = place
    jobs: list[NewJob] = []
    sizes = array("I")
    try:
        for job in _jobs(batch, columns, ids):
            sizes.append(check.new_job(job, settings))
            jobs.append(job)
    except RejectedError as error:
        row = number + len(jobs)
        message = f"row {row} of partition {partition} cannot be pushed: {error}"
        raise type(error)(message) from None
    return EncodedRows(_encode_lines(jobs), sizes)


def decode_rows(body: bytes) -> Iterator[NewJob]:
    """Decode staged lines one by one, because there may be very many."""
    return map(_decode, BytesIO(body))


def _session(write_id: str) -> str:
    """Return what job ids are made from: the write id, or its hash if a user chose it."""
    if _ID.fullmatch(write_id):
        return write_id
    digest = blake2b(write_id.encode(), digest_size=16).digest()
    return crockford(int.from_bytes(digest), _ID_LENGTH)


def _jobs(batch: pa.RecordBatch, columns: WriteColumns, ids: list[str]) -> Iterator[NewJob]:
    """Yield the jobs of a batch; ``ids`` are for rows that have none of their own."""
    fields = {name: values_of(batch.column(index)) for name, index in columns.fields.items()}
    rows = zip(ids, _payloads(batch, columns), strict=True)
    for number, (made, (raw, encoding)) in enumerate(rows):
        given: dict[str, Any] = {"id": made, "kind": columns.kind}
        for name, values in fields.items():
            if values[number] is not None:
                given[name] = values[number]
        yield NewJob(payload=raw, payload_encoding=encoding, **given)


def _payloads(
    batch: pa.RecordBatch, columns: WriteColumns
) -> Iterator[tuple[Raw, Encoding | None]]:
    if columns.payload is None:
        arrays = [batch.column(index) for index in columns.packed.values()]
        values = values_of(pa.StructArray.from_arrays(arrays, names=list(columns.packed)))
    else:
        values = values_of(batch.column(columns.payload))
    if columns.form == "json":
        return map(_json, values)
    if columns.form == "value":
        return encode_values(values)
    return (payloads.encode(value, "payload") for value in values)


def encode_values(values: list[Any]) -> Iterator[tuple[Raw, Encoding | None]]:
    """Encode values as JSON all at once, which is much faster than one by one."""
    whole = _NULL
    with suppress(TypeError, ValueError, OverflowError, RecursionError, UnicodeError):
        whole = _encode_lines(values)
    lines = whole.splitlines()
    if _NULL not in whole:
        return zip(map(Raw, lines), repeat(None))
    if len(lines) != len(values):
        lines = [_NULL] * len(values)
    # msgspec encodes NaN and infinity as null; `payloads.encode` rejects them.
    return (
        payloads.encode(value, "payload") if _NULL in line else (Raw(line), None)
        for line, value in zip(lines, values, strict=True)
    )


def _json(text: str | None) -> tuple[Raw, None]:
    """Return JSON as it was given, but on one line; a missing value is null."""
    if text is None:
        return Raw(_NULL), None
    raw = text.strip(_BLANKS).encode()
    if b"\n" in raw or b"\r" in raw:
        try:
            raw = msgspec.json.format(raw, indent=-1)
        except msgspec.DecodeError as error:
            message = f"payload is not valid JSON: {error}"
            raise PayloadError(message) from error
    return Raw(raw), None

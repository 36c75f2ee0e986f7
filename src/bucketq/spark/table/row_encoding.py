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
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from bucketq.base32 import crockford
from bucketq.commit.request_ids import RequestId
from bucketq.errors import PayloadError, RejectedError
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.records import Encoding
from bucketq.model.settings import MIB, Settings
from bucketq.queue import payload as payloads
from bucketq.spark.table.arrow_json import json_parts
from bucketq.spark.table.arrow_values import in_utc, values_of
from bucketq.spark.table.json_columns import variant_texts
from bucketq.spark.table.row_columns import (
    TEXT,
    IntArray,
    RowColumns,
    TextPart,
    id_parts,
    join_texts,
    letters_of,
    merge_texts,
    sizes_of,
    text_of,
)
from bucketq.spark.table.write_columns import WriteColumns

_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_ID_LENGTH = 26
_BLANKS = " \t\n\r"
_NULL = b"null"
_SPACE = ord(" ")
_encode_lines = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(NewJob).decode
_decode_lines = msgspec.json.Decoder(Raw).decode_lines


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
    lines: list[bytes] = []
    sizes = array("I")
    for each in encode_batches(batches, columns, settings, write_id, partition):
        lines.append(lines_of(each))
        sizes.frombytes(each.sizes.astype(np.uint32).tobytes())
    return EncodedRows(b"".join(lines), sizes)


def encode_batches(
    batches: Iterable[pa.RecordBatch],
    columns: WriteColumns,
    settings: Settings,
    write_id: str,
    partition: int,
) -> Iterator[RowColumns]:
    """Encode the rows of a partition, batch by batch. Raises as ``encode_rows``."""
    request, number = RequestId(_session(write_id), partition), 0
    for each in batches:
        # One for every row, also if it has its own: a row's id must not depend on other rows.
        ids, batch = _made_ids(request, number, each.num_rows), in_utc(each)
        encoded = encode_fast(batch, columns, settings, ids)
        if encoded is None:
            encoded = encode_each(batch, columns, settings, ids, (number, partition))
        number += each.num_rows
        yield encoded


def encode_fast(
    batch: pa.RecordBatch, columns: WriteColumns, settings: Settings, ids: pa.LargeBinaryArray
) -> RowColumns | None:
    """Encode rows of a kind, a payload and perhaps a priority, as most are, column by column.

    That is six times as fast as ``encode_each``, which makes a ``NewJob`` for each row. Returns
    None if it cannot, even for one row; ``encode_each`` then encodes the batch, and names the row
    that is wrong if there is one.
    """
    if columns.form == "bytes" or not columns.fields.keys() <= {"kind", "priority"}:
        return None
    try:
        kinds = _kinds(batch, columns)
        priorities = _priorities(batch, columns)
        payload, sizes = _checked_payloads(batch, columns, min(settings.max_payload_bytes, MIB))
    except RejectedError:
        return None
    # Kinds have no characters that JSON escapes.
    opening: list[TextPart] = [b'"kind":"', _kind_part(kinds), b'","payload":']
    lengths = sizes_of([*id_parts(ids), *opening]) + sizes
    opening += payload
    if priorities.any():
        numbers = join_texts(b',"priority":', pa.array(priorities).cast(pa.string()).cast(TEXT))
        part = pc.if_else(pa.array(priorities != 0), numbers, pa.scalar(b"", TEXT))
        opening.append(part)
        lengths += sizes_of([part])
    opening = merge_texts(opening)
    return RowColumns(ids, kinds, priorities, opening, lengths, sizes)


def encode_each(
    batch: pa.RecordBatch,
    columns: WriteColumns,
    settings: Settings,
    ids: pa.LargeBinaryArray,
    place: tuple[int, int],
) -> RowColumns:
    """Encode rows one by one; ``place`` is the number of the first, and its partition."""
    number, partition = place
    jobs: list[NewJob] = []
    sizes: list[int] = []
    try:
        for job in _jobs(batch, columns, ids.cast(pa.large_string()).to_pylist()):
            sizes.append(check.new_job(job, settings))
            jobs.append(job)
    except RejectedError as error:
        row = number + len(jobs)
        message = f"row {row} of partition {partition} cannot be pushed: {error}"
        raise type(error)(message) from None
    lines = _encode_lines(jobs).splitlines()
    made = pa.array([job.id for job in jobs], pa.large_string()).cast(TEXT)
    beginnings = [*map(len, join_texts(*id_parts(made)).to_pylist())] if jobs else []
    opening = [pa.array([line[n:-1] for n, line in zip(beginnings, lines, strict=True)], TEXT)]
    return RowColumns(
        made,
        pa.array([job.kind for job in jobs], pa.large_string()).dictionary_encode(),
        np.array([job.priority for job in jobs], np.int64),
        opening,
        sizes_of([*id_parts(made), *opening]),
        np.array(sizes, np.uint32),
    )


def lines_of(rows: RowColumns) -> bytes:
    """Return rows as lines that can be staged."""
    return text_of(join_texts(*id_parts(rows.ids), *rows.opening, b"}\n"))


def decode_rows(body: bytes) -> Iterator[NewJob]:
    """Decode staged lines one by one, because there may be very many."""
    return map(_decode, BytesIO(body))


def _made_ids(request: RequestId, start: int, count: int) -> pa.LargeBinaryArray:
    ends = np.arange(count + 1, dtype=np.int64) * _ID_LENGTH
    joined = request.joined_job_ids(start, count)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(joined)]
    return pa.LargeBinaryArray.from_buffers(TEXT, count, buffers)


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
            if values[number] is not None and values[number] != {}:
                given["group" if name == "job_group" else name] = values[number]
        yield NewJob(payload=raw, payload_encoding=encoding, **given)


def _kinds(batch: pa.RecordBatch, columns: WriteColumns) -> pa.DictionaryArray:
    if "kind" in columns.fields:
        kinds = batch.column(columns.fields["kind"])
    else:
        kinds = pa.repeat(pa.scalar(columns.kind, pa.string()), batch.num_rows)
    encoded = kinds.cast(pa.large_string()).dictionary_encode("encode")
    for kind in encoded.dictionary.to_pylist():
        check.kind(kind)
    return encoded


def _kind_part(kinds: pa.DictionaryArray) -> TextPart:
    """Return the kind of all rows, if they have the same, or else the kind of each."""
    if len(kinds.dictionary) == 1:
        return bytes(kinds.dictionary[0].as_buffer())
    return kinds.dictionary_decode().cast(TEXT)


def _priorities(batch: pa.RecordBatch, columns: WriteColumns) -> IntArray:
    if "priority" not in columns.fields:
        return np.zeros(batch.num_rows, np.int64)
    column = batch.column(columns.fields["priority"]).cast(pa.int64())
    values: IntArray = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if len(values):
        for value in (values.min(), values.max()):
            check.whole_number(int(value), "priority", -check.MAX_PRIORITY, check.MAX_PRIORITY)
    return values


def _checked_payloads(
    batch: pa.RecordBatch, columns: WriteColumns, limit: int
) -> tuple[list[TextPart], IntArray]:
    """Return payloads that were checked, and their sizes. Raises ``RejectedError`` if one is bad.

    All are checked at once; one by one only if that finds something, which may just be a line
    feed that does no harm. What was made of columns can only be too large: a schema that is too
    deep was rejected.
    """
    column = _payload_column(batch, columns)
    if columns.form == "value" and (parts := json_parts(column)) is not None:
        sizes = sizes_of(parts)
        if sizes.max(initial=0) <= limit:
            return parts, sizes
    texts = _texts(column, columns)
    if texts is None or not are_json_lines(texts, limit):
        raws = [raw for raw, _ in _payloads(batch, columns)]
        for raw in raws:
            check.body(raw, "payload", "max_payload_bytes", limit)
        texts = pa.array(list(map(bytes, raws)), TEXT)
    return [texts], sizes_of([texts])


def _texts(column: pa.Array, columns: WriteColumns) -> pa.LargeBinaryArray | None:
    """Return payloads as they would be if all are well; None: they have to be encoded one by one.

    msgspec encodes NaN and infinity as null, which is wrong.
    """
    if columns.form == "json":
        return pc.fill_null(column.cast(TEXT), _NULL)
    try:
        whole = _encode_lines(values_of(column))
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError):
        return None
    if _has_floats(column.type) and _NULL in whole:
        return None
    return pa.array(whole.splitlines(), TEXT)


def are_json_lines(texts: pa.LargeBinaryArray, limit: int) -> bool:
    """Whether all texts are JSON as ``check.body`` demands it; all are looked at together."""
    if not len(texts):
        return True
    if pc.max(pc.binary_length(texts)).as_py() > limit:
        return False
    if (letters_of(texts) < _SPACE).any():  # Line feeds, or what JSON does not allow in texts.
        return False
    whole = text_of(join_texts(texts, b"\n"))
    try:
        found = _decode_lines(whole)
        if not whole.isascii():
            whole.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    # As many values as texts, and they are cut at the same line feeds: so each text is one value,
    # without blanks around it.
    is_same = len(found) == len(texts) and b"\n".join([*found, b""]) == whole
    return is_same and not _may_be_deep(texts, whole)


def _may_be_deep(texts: pa.LargeBinaryArray, whole: bytes) -> bool:
    """Whether a text of JSON opens more objects and arrays than a payload may be deep."""
    sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    if sizes.max() <= 2 * check.MAX_DEPTH:  # Each is closed, too.
        return False
    letters = np.frombuffer(whole, np.uint8)
    starts = np.cumsum(sizes + 1) - sizes - 1
    opened = np.add.reduceat((letters == ord("[")) | (letters == ord("{")), starts, dtype=np.int64)
    return bool(opened.max() > check.MAX_DEPTH)


def _has_floats(kind: pa.DataType) -> bool:
    children = (kind.field(place).type for place in range(kind.num_fields))
    return pa.types.is_floating(kind) or any(map(_has_floats, children))


def _payload_column(batch: pa.RecordBatch, columns: WriteColumns) -> pa.Array:
    if columns.payload is not None:
        column = batch.column(columns.payload)
        return (
            variant_texts(column)
            if pa.types.is_struct(column.type) and columns.form == "json"
            else column
        )
    arrays = [batch.column(index) for index in columns.packed.values()]
    return pa.StructArray.from_arrays(arrays, names=list(columns.packed))


def _payloads(
    batch: pa.RecordBatch, columns: WriteColumns
) -> Iterator[tuple[Raw, Encoding | None]]:
    values = values_of(_payload_column(batch, columns))
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

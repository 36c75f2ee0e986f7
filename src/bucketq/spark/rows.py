"""Rows as jobs to be pushed: from Arrow batches to lines of JSON that can be staged.

A job's id follows from the write, the partition and the row, so that whoever writes the same rows
again pushes the same jobs.
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
import pyarrow as pa
from msgspec import Raw

from bucketq.clock import crockford
from bucketq.errors import PayloadError, RejectedError
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.job import Encoding
from bucketq.model.settings import Settings
from bucketq.queue import payload as payloads
from bucketq.queue.requests import RequestId
from bucketq.spark.cells import in_utc, values_of
from bucketq.spark.columns import Columns

_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_ID_LENGTH = 26
_BLANKS = " \t\n\r"
_NULL = b"null"
_encode_lines = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(NewJob).decode


class Encoded(msgspec.Struct):
    """The rows of a partition as lines of JSON, and how large the payload of each is."""

    body: bytes
    sizes: array[int]


def encode_rows(
    batches: Iterable[pa.RecordBatch],
    columns: Columns,
    settings: Settings,
    write_id: str,
    partition: int,
) -> Encoded:
    """Turn the rows of a partition into jobs; raises an error that names the row."""
    ids = RequestId(_session(write_id), partition).job_ids()
    lines: list[bytes] = []
    sizes = array("I")
    for batch in batches:
        jobs = []
        for job in _jobs(in_utc(batch), columns, ids, len(sizes), partition):
            try:
                sizes.append(check.new_job(job, settings))
            except RejectedError as error:
                message = f"row {len(sizes)} of partition {partition} cannot be pushed: {error}"
                raise type(error)(message) from None
            jobs.append(job)
        lines.append(_encode_lines(jobs))
    return Encoded(b"".join(lines), sizes)


def decode_rows(body: bytes) -> Iterator[NewJob]:
    """The jobs of staged lines, one by one, for there may be very many."""
    return map(_decode, BytesIO(body))


def _session(write_id: str) -> str:
    """What the ids of a write are made from: its own id, or, where a user chose it, a hash."""
    if _ID.fullmatch(write_id):
        return write_id
    digest = blake2b(write_id.encode(), digest_size=16).digest()
    return crockford(int.from_bytes(digest), _ID_LENGTH)


def _jobs(
    batch: pa.RecordBatch, columns: Columns, ids: Iterator[str], first: int, partition: int
) -> Iterator[NewJob]:
    """The jobs of a batch; ``first`` is the number of its first row."""

    def field(name: str, otherwise: object = None) -> Iterable[Any]:
        place = columns.fields.get(name)
        if place is None:
            return repeat(otherwise, batch.num_rows)
        return values_of(batch.column(place))

    rows = zip(
        field("id"),
        field("kind", columns.kind),
        _payloads(batch, columns),
        field("priority"),
        field("delay_s"),
        field("run_at"),
        field("max_attempts"),
        field("key"),
        field("tags"),
        strict=True,
    )
    number = first
    try:
        for job_id, kind, (raw, encoding), priority, delay_s, run_at, attempts, key, tags in rows:
            made = next(ids)  # Also where it is not used: a row's id must not lean on others.
            yield NewJob(
                id=made if job_id is None else job_id,
                kind=kind,
                payload=raw,
                payload_encoding=encoding,
                priority=priority or 0,
                delay_s=delay_s,
                run_at=run_at,
                max_attempts=attempts,
                key=key,
                tags=tags,
            )
            number += 1
    except PayloadError as error:
        message = f"row {number} of partition {partition} cannot be pushed: {error}"
        raise PayloadError(message) from None


def _payloads(batch: pa.RecordBatch, columns: Columns) -> Iterator[tuple[Raw, Encoding | None]]:
    if columns.payload is None:
        arrays = [batch.column(place) for place in columns.packed.values()]
        values = values_of(pa.StructArray.from_arrays(arrays, names=list(columns.packed)))
    else:
        values = values_of(batch.column(columns.payload))
    if columns.form == "json":
        return map(_json, values)
    if columns.form == "value":
        return encoded(values)
    return (payloads.encode(value, "payload") for value in values)


def encoded(values: list[Any]) -> Iterator[tuple[Raw, Encoding | None]]:
    """Values as JSON, encoded together: that is much faster than one by one."""
    lines: list[bytes] = []
    with suppress(TypeError, ValueError, OverflowError, RecursionError, UnicodeError):
        lines = _encode_lines(values).splitlines()
    if len(lines) != len(values):
        lines = [_NULL] * len(values)
    for line, value in zip(lines, values, strict=True):
        # A null may stand for a number that JSON has not, and that is refused.
        yield payloads.encode(value, "payload") if _NULL in line else (Raw(line), None)


def _json(text: str | None) -> tuple[Raw, None]:
    """JSON as it came, on one line; nothing is JSON's null."""
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

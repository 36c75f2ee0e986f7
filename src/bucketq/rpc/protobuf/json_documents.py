"""Jobs, settings, stats and snapshots on the wire, as JSON.

Their format is that of the object, so that it is described once. A newer broker may send fields
that this client does not know; the client ignores them, while a broker that reads them in the
object keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, inspect

from bucketq.model.records import JobRecord

_T = TypeVar("_T")

encode = msgspec.json.Encoder().encode
_as_job = msgspec.json.Decoder(JobRecord).decode
_as_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_as_list = msgspec.json.Decoder(list[Raw]).decode


def decode_job(document: bytes) -> JobRecord:
    """Decode a job. Raises ``msgspec.MsgspecError`` if it is not valid."""
    try:
        return _as_job(document)
    except msgspec.ValidationError:
        return decode(document, JobRecord)


def decode_jobs(documents: Iterable[bytes]) -> tuple[JobRecord, ...]:
    """Decode jobs."""
    return tuple([decode_job(document) for document in documents])


def encode_all(sent: Any, values: Iterable[Any]) -> int:
    """Append values to a repeated field, and return their size."""
    documents = [encode(value) for value in values]
    sent.extend(documents)
    return sum(map(len, documents))


DOCUMENTS = (encode_all, decode_jobs)
"""How a list of jobs is encoded and decoded."""


def decode(document: bytes, kind: type[_T]) -> _T:
    """Decode the known fields of a document. Raises ``msgspec.MsgspecError`` if it is not valid."""
    try:
        return msgspec.json.decode(document, type=kind)
    except msgspec.ValidationError:
        known = _without_unknown(Raw(document), inspect.type_info(kind))
        return msgspec.json.decode(known, type=kind)


def _without_unknown(document: Raw, shape: inspect.Type) -> Raw:
    """Remove unknown fields at every level, but not inside payloads."""
    if isinstance(shape, inspect.UnionType):
        structures = [kind for kind in shape.types if isinstance(kind, inspect.StructType)]
        if len(structures) != 1 or bytes(document) == b"null":
            return document
        shape = structures[0]
    try:
        if isinstance(shape, inspect.VarTupleType):
            items = _as_list(document)
            return Raw(encode([_without_unknown(item, shape.item_type) for item in items]))
        if isinstance(shape, inspect.StructType):
            types = {field.encode_name: field.type for field in shape.fields}
            fields = _as_fields(document)
            known = {
                name: _without_unknown(value, types[name])
                for name, value in fields.items()
                if name in types
            }
            return Raw(encode(known))
    except msgspec.ValidationError:
        return document
    return document

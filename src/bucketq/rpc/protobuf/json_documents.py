"""Jobs, settings, stats and snapshots on the wire, as JSON.

Their format is that of the object, so that it is described once. A newer broker may send fields
that this client does not know; the client ignores them, while a broker that reads them in the
object keeps them.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, inspect, structs

from bucketq.model.numbered_batches import ConsumerInfo
from bucketq.model.operations import Snapshot, Stats
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings
from bucketq.model.tokens import TokenInfo

_T = TypeVar("_T")

encode = msgspec.json.Encoder().encode
_as_job = msgspec.json.Decoder(JobRecord).decode
_as_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_as_list = msgspec.json.Decoder(list[Raw]).decode


def read_job(document: bytes) -> JobRecord:
    """Decode a job. Raises ``msgspec.MsgspecError`` if it is not valid."""
    try:
        return _as_job(document)
    except msgspec.ValidationError:
        return _read_known(document, JobRecord)


def read_jobs(documents: Any) -> tuple[JobRecord, ...]:
    """Decode jobs."""
    return tuple([read_job(document) for document in documents])


def write_settings(settings: Settings) -> bytes:
    """Encode all settings, including defaults, which other clients may not know."""
    return encode(structs.asdict(settings))


def read_settings(document: bytes) -> Settings:
    """Decode settings."""
    return _read_known(document, Settings)


def read_stats(document: bytes) -> Stats:
    """Decode stats."""
    return _read_known(document, Stats)


def read_snapshot(document: bytes) -> Snapshot:
    """Decode a snapshot."""
    return _read_known(document, Snapshot)


def read_token(document: bytes) -> TokenInfo:
    """Decode the public part of a token."""
    return _read_known(document, TokenInfo)


def read_consumer(document: bytes) -> ConsumerInfo:
    """Decode a consumer."""
    return _read_known(document, ConsumerInfo)


def _read_known(document: bytes, shape: type[_T]) -> _T:
    """Decode the known fields of a document. Raises if they are not valid."""
    try:
        return msgspec.json.decode(document, type=shape)
    except msgspec.ValidationError:
        known = _without_unknown(Raw(document), inspect.type_info(shape))
        return msgspec.json.decode(known, type=shape)


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

"""Encodes payloads and results as the JSON that the object holds, and decodes them.

JSON values, dataclasses, msgspec Structs and pydantic models are encoded as JSON, and bytes as
base64. Tuples, sets, times, UUIDs, decimals and enums get the JSON form that msgspec documents.

A value that JSON would alter is rejected, because otherwise only the worker that decodes it would
notice: NaN and infinity become null, bytes inside a value become text, and a key that is not a
string becomes one, perhaps one that is there already. The last two are accepted if the queue has a
``payload_type`` that decodes them again.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import reprlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Raw
from msgspec.inspect import CustomType, type_info

from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model import check
from bucketq.model.job_ids import JobId
from bucketq.model.records import NOTHING, Encoding

Body = tuple[Raw, Encoding | None]

_PLAIN = frozenset({dict, list, tuple, str, int, float, bool, type(None)})
"""Types that are JSON as they are; other types are inspected first."""
_ATOMS = frozenset({str, int, bool, type(None)})
"""Types whose values are all JSON as they are."""


def _as_builtin(value: object) -> str:
    """Return a ``JobId`` as a plain string, for the encoder."""
    if isinstance(value, JobId):
        return str(value)
    message = f"Encoding objects of type {type(value).__name__} is unsupported"
    raise TypeError(message)


_encode_plain = msgspec.json.Encoder().encode
_encode_ids = msgspec.json.Encoder(enc_hook=_as_builtin).encode


def _encode(value: object) -> bytes:
    """Encode a value in which there may be a ``JobId``."""
    try:
        return _encode_plain(value)
    except TypeError as error:
        with suppress(TypeError):
            return _encode_ids(value)
        raise error from None  # It says more than the error of an encoder with a hook.


def check_type(into: Any) -> None:
    """Reject a type into which no JSON can be decoded."""
    if hasattr(into, "__pydantic_validator__"):
        return
    try:
        msgspec.json.Decoder(into)
        unread = _undecodable(type_info(into), set())
    except (TypeError, NameError, msgspec.MsgspecError) as error:
        message = f"payload_type {_name(into)} cannot be used: {error}"
        raise InvalidRequestError(message) from error
    if unread is not None:
        message = (
            f"payload_type {_name(into)} cannot be used: JSON cannot be decoded as "
            f"{_name(unread)}; make that a dataclass, a TypedDict, a msgspec Struct, or a pydantic "
            "model by itself"
        )
        raise InvalidRequestError(message)


def encode_plain(value: object) -> bytes | None:
    """Encode a value that is JSON as it is, like most payloads; None: use ``encode``.

    The result passes ``check.body``: our encoder writes valid JSON on one line.
    """
    try:
        body = _encode_plain(value) if _is_json(value) else None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # ``encode`` says why.
    return None if body is None or check.is_deep(body) else body


def encode(value: object, what: str, into: Any = Any) -> Body:
    """Encode a value as JSON that decodes to the same value as a type ``into``.

    Raises:
        PayloadError: The value cannot be encoded, or would come out altered.
    """
    is_plain = type(value) in _PLAIN
    if not is_plain and isinstance(value, bytes | bytearray | memoryview):
        body = Raw(b'"%b"' % base64.b64encode(value))
        if into is not Any:
            decode(body, "base64", into, what)
        return body, "base64"
    try:
        dumped = value
        if not is_plain and hasattr(value, "__pydantic_serializer__"):
            dumped = _dump(cast("Any", value), "json")
        body = Raw(_encode(dumped))
        loss = None if _is_json(value) else next(_losses(value), None)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        message = f"{what} cannot be encoded as JSON: {reason}"
        raise PayloadError(message) from error
    restored = None if into is Any else decode(body, None, into, what)
    if loss is not None and (
        loss.is_final or into is Any or _contents(restored) != _contents(value)
    ):
        message = f"{what} {loss.reason}: {loss.advice(what)}"
        raise PayloadError(message)
    return body, None


def decode(raw: Raw, encoding: Encoding | None, into: Any, what: str) -> Any:
    """Decode JSON into a value of type ``into`` (``Any``: plain values)."""
    try:
        if encoding is None and (decoder := _decoder_of(into)) is not None:
            return decoder.decode(raw)
        validator = getattr(into, "__pydantic_validator__", None)
        if encoding == "base64":
            data = base64.b64decode(msgspec.json.decode(raw, type=str), validate=True)
            if validator is not None:
                return validator.validate_python(data)
            return msgspec.convert(data, into)
        if validator is not None:
            return validator.validate_json(bytes(raw))
        return msgspec.json.decode(raw, type=into)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        message = f"{what} cannot be decoded as {_name(into)}: {error}"
        raise PayloadError(message) from error


def _decoder_of(into: Any) -> msgspec.json.Decoder[Any] | None:
    """Return a decoder for a type; None for types that msgspec does not decode by itself."""
    try:
        return _kept_decoder_of(into)
    except TypeError:  # It cannot be hashed.
        return None


@lru_cache
def _kept_decoder_of(into: Any) -> msgspec.json.Decoder[Any] | None:
    return None if hasattr(into, "__pydantic_validator__") else msgspec.json.Decoder(into)


def decode_result(raw: Raw, encoding: Encoding | None, what: str) -> Any:
    """Decode a result into plain values; None if there is none."""
    return None if raw is NOTHING or not bytes(raw) else decode(raw, encoding, Any, what)


def _undecodable(info: Any, seen: set[int]) -> type | None:
    """Return a class that a type requires and into which no JSON can be decoded; or None.

    msgspec accepts any class, and fails only when it decodes a value.
    """
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, CustomType):
        return None if any(issubclass(plain, info.cls) for plain in _PLAIN) else info.cls
    inside = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
    inside += [*getattr(info, "item_types", ()), *getattr(info, "types", ())]
    inside += [field.type for field in getattr(info, "fields", ()) if field.required]
    found = (_undecodable(each, seen) for each in inside if each is not None)
    return next((each for each in found if each is not None), None)


def _dump(value: Any, mode: str) -> Any:
    """Return the plain values of a pydantic model, or of a dataclass that pydantic validates."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode=mode)
    return value.__pydantic_serializer__.to_python(value, mode=mode)


def _is_json(value: object) -> bool:
    """Whether a value is JSON as it is, like most. Written for speed: every push calls it."""
    kind = type(value)
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str or (type(item) not in _ATOMS and not _is_json(item)):
                return False
        return True
    if kind is list:
        for item in cast("list[object]", value):
            if type(item) not in _ATOMS and not _is_json(item):
                return False
        return True
    return kind in _ATOMS or (kind is float and math.isfinite(cast("float", value)))


class _Loss(NamedTuple):
    """What JSON would alter in a value."""

    reason: str
    remedy: str
    is_final: bool = False
    """No type restores it."""

    def advice(self, what: str) -> str:
        """Say what to do. Only payloads have a type that could restore the value."""
        advice = self.remedy.format(what=what)
        if self.is_final or what != "payload":
            return advice
        return f"{advice}, or connect with a payload_type that restores it"


_NOT_FINITE = _Loss(
    "holds NaN or infinity, which JSON does not have", "use None or a string", is_final=True
)


def _losses(value: object) -> Iterator[_Loss]:
    """Find what JSON would alter in a value that can be encoded."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield _NOT_FINITE
    elif isinstance(value, bytes | bytearray | memoryview):
        yield _Loss(
            "holds bytes inside another value, which JSON would turn into text",
            "encode them as text (base64) or make them the whole {what}",
        )
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield _bad_key(key)
            yield from _losses(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _losses(item)
    else:
        for item in _fields(value):
            yield from _losses(item)


def _bad_key(key: object) -> _Loss:
    if isinstance(key, float) and not math.isfinite(key):
        return _NOT_FINITE
    shown = reprlib.repr(key)
    return _Loss(
        f"has a key that is not a string, {shown} ({type(key).__name__}), which JSON would turn "
        "into one",
        "use strings as keys",
    )


def _fields(value: Any) -> list[object]:
    """Return the values of the fields of an object; none for anything else."""
    if hasattr(value, "__pydantic_serializer__"):
        return [_dump(value, "python")]
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return [getattr(value, each.name, None) for each in dataclasses.fields(value)]
    if hasattr(value, "__attrs_attrs__"):
        return [getattr(value, each.name, None) for each in value.__attrs_attrs__]
    return []


def _contents(value: Any) -> Any:
    """Return a value in builtin types, with its bytes and keys as they are."""
    if hasattr(value, "__pydantic_serializer__"):
        value = _dump(value, "python")
    return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))


def _name(into: object) -> str:
    return getattr(into, "__name__", str(into))

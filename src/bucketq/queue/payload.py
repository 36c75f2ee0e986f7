"""Payloads and results: what a program holds, and the JSON that the object holds.

JSON values, dataclasses, msgspec Structs and pydantic models go in as JSON; bytes go in as base64.
What would not come out as it went in is refused (NaN, infinity, lone surrogates), for it would
be noticed only when a worker reads it.
"""

from __future__ import annotations

import base64
import math
from typing import Any, cast

import msgspec
from msgspec import Raw
from msgspec.inspect import CustomType, type_info

from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model.job import NOTHING, Encoding

Body = tuple[Raw, Encoding | None]

_PLAIN = frozenset({dict, list, tuple, str, int, float, bool, type(None)})
"""Types that are JSON as they are; of others it is asked first what they are."""


def check_type(into: Any) -> None:
    """Refuse a type that nothing can be read as, before anybody reads."""
    if hasattr(into, "__pydantic_validator__"):
        return
    try:
        msgspec.json.Decoder(into)
        unread = _unreadable(type_info(into), set())
    except (TypeError, NameError, msgspec.MsgspecError) as error:
        message = f"payload_type {_name(into)} cannot be used: {error}"
        raise InvalidRequestError(message) from error
    if unread is not None:
        message = (
            f"payload_type {_name(into)} cannot be used: JSON cannot be read as {_name(unread)}; "
            "make that a dataclass, a TypedDict, a msgspec Struct, or a pydantic model by itself"
        )
        raise InvalidRequestError(message)


def encode(value: object, what: str) -> Body:
    """Turn a value into JSON; raises ``PayloadError`` where that would lose something."""
    is_plain = type(value) in _PLAIN
    if not is_plain and isinstance(value, bytes | bytearray | memoryview):
        return Raw(b'"%b"' % base64.b64encode(value)), "base64"
    try:
        if not is_plain and hasattr(value, "__pydantic_serializer__"):
            value = _dump(cast("Any", value))
        raw = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        message = f"{what} cannot be written as JSON: {reason}"
        raise PayloadError(message) from error
    if raw.find(b"null") >= 0 and _has_nan(msgspec.to_builtins(value, enc_hook=_leave_raw)):
        message = f"{what} holds NaN or infinity, which JSON has not: use None or a string"
        raise PayloadError(message)
    return Raw(raw), None


def decode(raw: Raw, encoding: Encoding | None, into: Any, what: str) -> Any:
    """Turn JSON back into a value of type ``into`` (``Any``: plain values)."""
    try:
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
        message = f"{what} cannot be read as {_name(into)}: {error}"
        raise PayloadError(message) from error


def decode_result(raw: Raw, encoding: Encoding | None, what: str) -> Any:
    """Turn a result back into plain values; None where there is none."""
    return None if raw is NOTHING or not bytes(raw) else decode(raw, encoding, Any, what)


def _unreadable(info: Any, seen: set[int]) -> type | None:
    """A class that no JSON can be read as, somewhere in a type where it is needed; or None.

    msgspec takes any class, and tells only when it reads that nothing ever is one.
    """
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, CustomType):
        return None if any(issubclass(plain, info.cls) for plain in _PLAIN) else info.cls
    inside = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
    inside += [*getattr(info, "item_types", ()), *getattr(info, "types", ())]
    inside += [field.type for field in getattr(info, "fields", ()) if field.required]
    found = (_unreadable(each, seen) for each in inside if each is not None)
    return next((each for each in found if each is not None), None)


def _dump(value: Any) -> Any:
    """The plain values of a pydantic model, or of a dataclass that pydantic checks."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return value.__pydantic_serializer__.to_python(value, mode="json")


def _leave_raw(value: object) -> object:
    """Leave out what is JSON already; its own parser has no word for NaN."""
    if isinstance(value, Raw):
        return None
    message = f"objects of type {type(value).__name__} are not supported"
    raise TypeError(message)


def _has_nan(value: object) -> bool:
    """Whether a value of plain types holds a number that JSON has not."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nan, value)) or any(map(_has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    return False


def _name(into: object) -> str:
    return getattr(into, "__name__", str(into))

"""Is a request one that can be granted at all? The limits on what comes in, in one place.

Every function raises an ``InvalidRequestError`` or one of its siblings, which names the value,
the limit and, where there is one, the setting that holds it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NoReturn

import msgspec
from msgspec import Raw

from bucketq.errors import InvalidRequestError, PayloadError, PayloadTooLargeError
from bucketq.model.operations import NewJob
from bucketq.model.settings import Settings, check_backoff

MAX_DEPTH = 100
"""How deep a payload may be nested; a parser that recurses must never be the limit."""
MAX_NAME = 256
_SHOWN_LENGTH = 80
MAX_PRIORITY = 2**31
MAX_DELAY_S = 10 * 365 * 86400.0

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
_decode_raw = msgspec.json.Decoder(Raw).decode
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')


def new_job(job: NewJob, settings: Settings) -> None:
    """Check a job that is to be pushed."""
    name(job.id, "job id")
    kind(job.kind)
    whole_number(job.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
    if job.delay_s is not None and job.run_at is not None:
        _refuse("give delay_s or run_at, not both")
    if job.delay_s is not None:
        delay(job.delay_s)
    if job.run_at is not None:
        moment(job.run_at, "run_at")
    if job.max_attempts is not None:
        whole_number(job.max_attempts, "max_attempts", 1, 1_000_000)
    if job.backoff is not None:
        check_backoff(job.backoff)
    if job.key is not None:
        name(job.key, "idempotency key")
    if job.tags is not None:
        tags(job.tags, settings)
    if job.replay_of is not None:
        name(job.replay_of, "replay_of")
    encoding(job.payload_encoding, "payload_encoding")
    body(job.payload, "payload", "max_payload_bytes", settings.max_payload_bytes)


def kind(value: object) -> None:
    """Check the name of a kind."""
    if not isinstance(value, str) or not _KIND.fullmatch(value):
        _refuse(
            f"bad kind {_short(value)}: use 1 to 128 letters, digits and . _ : / @ -, "
            "beginning with a letter or digit"
        )


def kinds(values: tuple[str, ...]) -> None:
    """Check the names of kinds that a request chooses by."""
    if len(values) > MAX_NAME:
        _refuse(f"{len(values)} kinds in one request, at most {MAX_NAME} are allowed")
    for value in values:
        kind(value)


def name(value: object, what: str) -> None:
    """Check an id, a key or a worker's name."""
    if not isinstance(value, str):
        _refuse(f"{what} must be a string, got {_short(value)}")
    if not value or len(value) > MAX_NAME:
        _refuse(f"{what} must have 1 to {MAX_NAME} characters, got {len(value)}")
    text(value, what)


def text(value: object, what: str) -> None:
    """Check that a value is a string that can be written as UTF-8."""
    if not isinstance(value, str):
        _refuse(f"{what} must be a string, got {_short(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = f"{what} holds a lone surrogate at {error.start}, which is not valid text"
        raise InvalidRequestError(message) from error


def tags(values: dict[str, str], settings: Settings) -> None:
    """Check a job's tags."""
    if not isinstance(values, dict):
        _refuse(f"tags must be a dictionary of strings, got {_short(values)}")
    if len(values) > settings.max_tags:
        _refuse(f"{len(values)} tags, at most {settings.max_tags} are allowed (max_tags)")
    for key, value in values.items():
        name(key, "tag")
        if not isinstance(value, str) or len(value) > MAX_NAME:
            _refuse(f"the value of tag {key!r} must be a string of up to {MAX_NAME} characters")
        text(value, f"tag {key!r}")


def whole_number(value: object, what: str, lowest: int, highest: int) -> None:
    """Check an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(f"{what} must be a whole number, got {_short(value)}")
    if not lowest <= value <= highest:
        _refuse(f"{what} must be between {lowest} and {highest}, got {_short(value)}")


def delay(value: object, what: str = "delay_s") -> None:
    """Check a number of seconds to wait."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(f"{what} must be a number of seconds, got {_short(value)}")
    if not 0 <= value <= MAX_DELAY_S:
        _refuse(f"{what} must be between 0 and {MAX_DELAY_S:.0f} seconds, got {_short(value)}")


def moment(value: object, what: str) -> None:
    """Check a point in time."""
    if not isinstance(value, datetime):
        _refuse(f"{what} must be a datetime, got {_short(value)}")
    if value.utcoffset() is None:
        _refuse(f"{what} needs a time zone, for example datetime.now(UTC); got {value!r}")
    try:
        value.astimezone(UTC)
    except OverflowError:
        _refuse(f"{what} is too far away to be told in UTC: {value!r}")


def body(value: object, what: str, setting: str, limit: int) -> None:
    """Check the size and the depth of a payload or a result."""
    if not isinstance(value, Raw):
        _refuse(f"{what} must be encoded JSON, got {_short(value)}")
    raw = bytes(value)
    if len(raw) > limit:
        message = (
            f"{what} too large: {len(raw):,} bytes, at most {limit:,} are allowed ({setting}); "
            "put the data in an object of its own and push its address"
        )
        raise PayloadTooLargeError(message)
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        _refuse(f"{what} nested deeper than {MAX_DEPTH} levels: flatten it")
    _json_line(raw, what)


def encoding(value: object, what: str) -> None:
    """Check how a payload or a result is written as JSON."""
    if value is not None and value != "base64":
        _refuse(f"unknown {what} {_short(value)}: it is 'base64', or none")


def _json_line(raw: bytes, what: str) -> None:
    """Check what goes into the object as it is: one bad line there would spoil all of it."""
    try:
        _decode_raw(raw)
        raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{what} is not valid JSON: {error}"
        raise PayloadError(message) from error
    if b"\n" in raw or b"\r" in raw or raw != raw.strip():
        message = f"{what} is JSON with line breaks or blanks around it: encode it on one line"
        raise PayloadError(message)


def _depth(raw: bytes) -> int:
    depth = deepest = 0
    for byte in _STRINGS.sub(b"", raw):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_LENGTH else f"{shown[:_SHOWN_LENGTH]}..."


def _refuse(message: str) -> NoReturn:
    raise InvalidRequestError(message)

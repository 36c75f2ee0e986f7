"""Parses the values of arguments and options. Errors name the option and show how to write it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import msgspec

from bucketq.cli.terminal.user_input import interruptible
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw]?)"
STDIN = "-"
_decode_any = msgspec.json.Decoder().decode


class NotDecodableError(ValueError):
    """JSON with a value that Python cannot represent."""


def parse_duration(text: str, what: str) -> float:
    """Parse a duration like 90, 90s, 15m, 2h, 3d or 1w into seconds."""
    found = re.fullmatch(_DURATION, text.strip())
    if found is None:
        message = f"{what}: {text!r} is not a duration; write it like 90s, 15m, 2h, 3d or 1w"
        raise InvalidRequestError(message)
    return float(found[1]) * _UNITS[found[2] or "s"]


def parse_moment(text: str, what: str, now: datetime) -> datetime:
    """Parse a time: a duration ago (2h), an RFC 3339 time, or a day in UTC."""
    if re.fullmatch(_DURATION, text.strip()):
        try:
            return now - timedelta(seconds=parse_duration(text, what))
        except OverflowError:
            raise InvalidRequestError(f"{what}: {text!r} is too long ago") from None
    return parse_time(text, what)


def parse_time(text: str, what: str) -> datetime:
    """Parse an RFC 3339 time, or a day, which begins at midnight UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidRequestError(
            f"{what}: {text!r} is not a time; write it like 2026-02-15T10:00:00Z or 2026-02-15"
        ) from None
    if moment.tzinfo is None:
        if len(text.strip()) > len("2026-02-15"):
            raise InvalidRequestError(f"{what}: {text!r} has no time zone; end it with Z for UTC")
        moment = moment.replace(tzinfo=UTC)
    return moment


def moments(since: str, until: str | None, first: str, last: str) -> tuple[datetime, datetime]:
    """Parse a time range, which ends now by default. ``first`` and ``last`` name the options."""
    moment = now()
    begin = parse_moment(since, first, moment)
    end = moment if until is None else parse_moment(until, last, moment)
    if begin >= end:
        raise InvalidRequestError(f"{first} {since} is not before {until or 'now'}")
    return begin, end


def parse_tags(pairs: list[str] | None) -> dict[str, str] | None:
    """Parse tags of the form name=value."""
    return _parse_pairs(pairs, "--tag: {!r} does not have the form name=value") or None


def parse_settings(pairs: list[str] | None) -> dict[str, object]:
    """Parse settings of the form name=value, with the value as JSON."""
    changes: dict[str, object] = {}
    texts = _parse_pairs(pairs, "{!r} does not have the form name=value, like lease_s=60")
    for name, text in texts.items():
        try:
            changes[name.strip()] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            message = f"the value of {name} is {text!r}, which is neither a number nor JSON"
            raise InvalidRequestError(message) from None
    return changes


def _parse_pairs(pairs: list[str] | None, complaint: str) -> dict[str, str]:
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequestError(complaint.format(pair))
        found[name] = value
    return found


def parse_json(raw: bytes, what: str) -> msgspec.Raw:
    """Check JSON, and put it on one line, as in the object."""
    try:
        line = msgspec.json.format(raw.strip(), indent=-1)
        check_decodable(line)
    except NotDecodableError as error:
        raise InvalidRequestError(f"{what} cannot be decoded: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{what} is not JSON: {error}; write a string with quotes, like '\"text\"'"
        raise InvalidRequestError(message) from None
    return msgspec.Raw(line)


def check_decodable(raw: bytes | msgspec.Raw) -> None:
    """Reject JSON that workers could not decode, like numbers out of range."""
    try:
        _decode_any(raw)
    except msgspec.ValidationError as error:
        message = f"no worker in Python can decode it: {str(error).lower()}; write it as a string"
        raise NotDecodableError(message) from None


def read_bytes(path: Path) -> bytes:
    """Read a file, or stdin if it is called ``-``."""
    if str(path) == STDIN:
        with interruptible():
            return sys.stdin.buffer.read()
    with open_file(path) as file:
        return file.read()


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; errors name it."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        message = f"cannot read {path}: {(error.strerror or str(error)).lower()}"
        raise InvalidRequestError(message) from None


def check_timeout(timeout_s: float) -> float:
    """Reject a timeout that is not a positive number of seconds."""
    if not 0 < timeout_s < float("inf"):
        raise InvalidRequestError(f"--timeout must be more than 0 seconds, got {timeout_s:g}")
    return timeout_s


def now() -> datetime:
    """The wall time."""
    return SystemClock().now()

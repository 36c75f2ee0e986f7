"""How the values of arguments and options are read."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from bucketq.cli.bulk.feeds import UnreadableError, check_readable
from bucketq.cli.terminal.interrupt import at_once
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_STDIN = "-"


def parse_duration(text: str, what: str) -> float:
    """Read a duration like 90, 90s, 15m, 2h, 3d or 1w, in seconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        message = f"{what}: {text!r} is no duration; write it like 90s, 15m, 2h, 3d or 1w"
        raise InvalidRequestError(message)
    return float(found[1]) * _UNITS[found[2] or "s"]


def parse_moment(text: str, what: str, now: datetime) -> datetime:
    """Read a moment: a duration ago (2h), an RFC 3339 time, or a day in UTC."""
    if _DURATION.fullmatch(text.strip()):
        try:
            return now - timedelta(seconds=parse_duration(text, what))
        except OverflowError:
            message = f"{what}: {text!r} is too long ago"
            raise InvalidRequestError(message) from None
    return parse_time(text, what)


def parse_time(text: str, what: str) -> datetime:
    """Read an RFC 3339 time, or a day, which begins at midnight in UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        message = f"{what}: {text!r} is no time; write it like 2026-02-15T10:00:00Z or 2026-02-15"
        raise InvalidRequestError(message) from None
    if moment.tzinfo is None:
        if len(text.strip()) > len("2026-02-15"):
            message = f"{what}: {text!r} has no zone; end it with Z for UTC"
            raise InvalidRequestError(message)
        moment = moment.replace(tzinfo=UTC)
    return moment


def moments(since: str, until: str | None, first: str, last: str) -> tuple[datetime, datetime]:
    """Read a range of time, whose end is now where none is given; the names are for errors."""
    moment = now()
    begin = parse_moment(since, first, moment)
    end = moment if until is None else parse_moment(until, last, moment)
    if begin >= end:
        message = f"{first} {since} is not before {until or 'now'}"
        raise InvalidRequestError(message)
    return begin, end


def parse_tags(pairs: list[str] | None, what: str = "--tag") -> dict[str, str] | None:
    """Read tags that are written as name=value."""
    if not pairs:
        return None
    tags = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            message = f"{what}: {pair!r} is not of the form name=value"
            raise InvalidRequestError(message)
        tags[name] = value
    return tags


def parse_settings(pairs: list[str] | None) -> dict[str, object]:
    """Read settings that are written as name=value, the value as JSON."""
    changes: dict[str, object] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            message = f"{pair!r} is not of the form name=value, like lease_s=60"
            raise InvalidRequestError(message)
        try:
            changes[name.strip()] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            message = f"the value of {name} is {text!r}, which is neither a number nor JSON"
            raise InvalidRequestError(message) from None
    return changes


def parse_json(raw: bytes, what: str) -> msgspec.Raw:
    """Check JSON, and put it on one line as it will stand in the object."""
    try:
        line = msgspec.json.format(raw.strip(), indent=-1)
        check_readable(line)
    except UnreadableError as error:
        message = f"{what} cannot be read: {error}"
        raise InvalidRequestError(message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{what} is not JSON: {error}; a text is written with quotes, like '\"text\"'"
        raise InvalidRequestError(message) from None
    return msgspec.Raw(line)


def read_bytes(path: Path) -> bytes:
    """Read a file, or stdin where it is called ``-``."""
    if str(path) == _STDIN:
        with at_once():
            return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"cannot read {path}: {(error.strerror or str(error)).lower()}"
        raise InvalidRequestError(message) from None


def check_timeout(timeout_s: float) -> float:
    """Refuse a timeout that nothing could meet."""
    if not 0 < timeout_s < float("inf"):
        message = f"--timeout must be more than 0 seconds, got {timeout_s:g}"
        raise InvalidRequestError(message)
    return timeout_s


def now() -> datetime:
    """The wall time."""
    return SystemClock().now()

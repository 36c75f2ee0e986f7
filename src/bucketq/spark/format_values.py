"""Values of options, which Spark passes on as text: numbers, sizes, times, lists and switches.

Each function returns a value, or raises ``InvalidRequestError`` that names the option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NoReturn

from bucketq.errors import InvalidRequestError

_SECONDS_MAX = 3600.0
"""A timeout or lease of more than an hour is more likely a mistake, such as milliseconds."""
_SWITCH = {"true": True, "false": False}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTES = re.compile(r"(\d{1,18})([kmgt]?)b?", re.ASCII)
"""As Spark writes sizes in its own settings: 64m are 64 MiB."""
_BYTES_MAX = 1 << 60


def refuse(message: str) -> NoReturn:
    """Raise ``InvalidRequestError``."""
    raise InvalidRequestError(message)


def whole_number(found: Mapping[str, str], name: str, most: int) -> int | None:
    """Return a whole number from 1 on, or None if it is not given."""
    text = found.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        refuse(f"option {name}: {text!r} is not a whole number from 1 to {most:,}")
    return int(text)


def byte_count(found: Mapping[str, str], name: str, most: int) -> int | None:
    """Return a number of bytes, or None if it is not given; 0 is a number."""
    return 0 if found.get(name) == "0" else whole_number(found, name, most)


def size(found: Mapping[str, str], name: str) -> int | None:
    """Return a number of bytes that may have a unit, or None if it is not given."""
    text = found.get(name)
    if text is None:
        return None
    parts = _BYTES.fullmatch(text.strip().lower())
    value = int(parts[1]) * _UNITS[parts[2]] if parts else 0
    if not 1 <= value <= _BYTES_MAX:
        refuse(f"option {name}: {text!r} is not a size: write bytes, as 67108864, or 64m, or 1g")
    return value


def seconds(found: Mapping[str, str], name: str, default: float) -> float:
    """Return a number of seconds, or the default if it is not given."""
    text = found.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _SECONDS_MAX:
        refuse(f"option {name}: {text!r} is not a number of seconds up to {_SECONDS_MAX:.0f}")
    return value


def switch(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return true or false, or the default if it is not given."""
    text = found.get(name)
    if text is None:
        return default
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        refuse(f"option {name}: {text!r} is neither true nor false")
    return value


def name_list(found: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the names between commas; none if it is not given."""
    names = (each.strip() for each in found.get(name, "").split(","))
    return tuple(each for each in names if each)


def moment(found: Mapping[str, str], name: str) -> datetime | None:
    """Return a time, or None if it is not given."""
    text = found.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        # A time without a zone is in UTC, whatever the zone of the session or the machine.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"option {name}: {text!r} is not a time; write 2026-11-01 or 2026-11-01T10:00:00Z"
        raise InvalidRequestError(message) from error

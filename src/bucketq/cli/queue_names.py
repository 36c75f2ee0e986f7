"""The names of queues on a command line: NAME=URL, or a name that follows from the address."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

_NAMED = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})=(.+)")
_UNFIT = re.compile(r"[^a-z0-9._-]+")


def name_and_url(text: str) -> tuple[str, str]:
    """Parse NAME=URL, or derive the name from a URL."""
    found = _NAMED.fullmatch(text)
    if found is not None:
        return found[1], found[2]
    path = PurePosixPath("/" + urlsplit(text).path.strip("/"))
    stem = path.stem if path.stem != "queue" else path.parent.name or "queue"
    return as_name(stem), text


def as_name(text: str) -> str:
    """Return a name of a queue that resembles a text."""
    return _UNFIT.sub("-", text.lower()).strip("-._")[:64] or "queue"

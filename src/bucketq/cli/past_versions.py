"""Earlier versions of a queue, for commands with ``--at``."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from bucketq.cli.parameters import option
from bucketq.cli.parsing import now, parse_moment

if TYPE_CHECKING:
    from bucketq.model.operations import Snapshot
    from bucketq.queue.queue import Queue

At = Annotated[
    str | None,
    option("--at VERSION|TIME", "As it was at this version, or time; from the history."),
]
_VERSION = re.compile(r"\d+")


def parse_version_or_time(text: str, what: str) -> int | datetime:
    """Parse a version (1200), a duration ago (2h), or a time."""
    text = text.strip()
    return int(text) if _VERSION.fullmatch(text) else parse_moment(text, what, now())


async def read_past(queue: Queue[Any], text: str, what: str) -> Snapshot:
    """Read the version of a queue that an option names."""
    moment = parse_version_or_time(text, what)
    if isinstance(moment, int):
        return await queue.snapshot(version=moment)
    return await queue.snapshot(at=moment)

"""The offsets of a stream in Spark's checkpoint: their format, and which of them are committed.

An offset is ``{"consumer": NAME, "batch": NUMBER}``. Checkpoints outlive versions of bucketq, so
this format stays readable. The name is in it so that a checkpoint that is used with another
consumer is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from bucketq.errors import InvalidRequestError


def offset_of(consumer: str, batch: int) -> dict[str, Any]:
    """Return the offset at the end of a micro-batch."""
    return {"consumer": consumer, "batch": batch}


def batch_of(offset: Mapping[str, Any], consumer: str) -> int:
    """Return the number of the micro-batch that an offset of this consumer ends with."""
    batch = offset.get("batch")
    if not isinstance(batch, int):
        message = f"the checkpoint is not one of a bucketq stream, it has {json.dumps(offset)}"
        raise InvalidRequestError(message)
    if offset.get("consumer") != consumer:
        message = (
            f"the checkpoint is one of consumer {offset.get('consumer')!r}, and the option "
            f"consumer says {consumer!r}: give each its own checkpoint"
        )
        raise InvalidRequestError(message)
    return batch


def last_committed(checkpoint: str, consumer: str) -> int:
    """Return the last micro-batch of a consumer that Spark has committed, or 0 if there is none."""
    folder = _folder(checkpoint)
    commits = [int(path.name) for path in (folder / "commits").iterdir() if path.name.isdecimal()]
    if not commits:
        return 0
    text = (folder / "offsets" / str(max(commits))).read_text("utf-8")
    found = [batch for line in text.splitlines() for batch in _batches(line, consumer)]
    if not found:
        message = f"the checkpoint {checkpoint} is not one of a stream of consumer {consumer!r}"
        raise InvalidRequestError(message)
    return max(found)


def _folder(checkpoint: str) -> Path:
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        message = (
            f"a checkpoint at {checkpoint} cannot be read from here: check yourself that the "
            "query ended without an error, and leave checkpoint out"
        )
        raise InvalidRequestError(message)
    folder = Path(unquote(parts.path)) if parts.scheme else Path(checkpoint)
    for name in ("commits", "offsets"):
        if not (folder / name).is_dir():
            message = f"no checkpoint of a stream at {checkpoint}: it has no folder {name}"
            raise InvalidRequestError(message)
    return folder


def _batches(text: str, consumer: str) -> Iterator[int]:
    """Yield the batch numbers in a line of Spark's offset log, at any depth of its JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return
    if not isinstance(value, dict):
        return
    if value.get("consumer") == consumer and isinstance(value.get("batch"), int):
        yield value["batch"]
    for each in value.values():
        yield from _batches(each if isinstance(each, str) else json.dumps(each), consumer)

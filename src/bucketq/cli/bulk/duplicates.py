"""Finds jobs of one feed that have the same id or key but different content."""

from __future__ import annotations

from datetime import UTC
from hashlib import blake2b

import msgspec

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob

_encode = msgspec.json.Encoder(order="deterministic").encode


class DuplicateFinder:
    """The ids and keys of a feed so far; errors name the feed, and the numbers of its items."""

    def __init__(self, name: str, noun: str) -> None:
        self._name = name
        self._noun = noun
        self._seen: dict[tuple[str, str], tuple[int, bytes]] = {}

    def add(self, job: NewJob, number: int, *, has_own_id: bool) -> None:
        """Raise ``InvalidRequestError`` if a job with the same id or key has other content."""
        if job.key is not None:
            self._compare("key", job.key, number, _all_of(job))
        if has_own_id:
            content = _encode([job.kind, job.payload, job.priority, job.key])
            self._compare("id", job.id, number, content)

    def _compare(self, what: str, value: str, number: int, content: bytes) -> None:
        digest = blake2b(content, digest_size=16).digest()
        first, known = self._seen.setdefault((what, value), (number, digest))
        if known != digest:
            raise InvalidRequestError(
                f"{self._name}: {self._noun}s {first:,} and {number:,} have the same {what} "
                f"{value!r} but different contents: correct one of them"
            )


def _all_of(job: NewJob) -> bytes:
    """Encode all but the id, which the key replaces; equal jobs give equal bytes."""
    try:
        payload = _encode(msgspec.json.decode(job.payload))
    except msgspec.MsgspecError:
        payload = bytes(job.payload)
    content = msgspec.structs.replace(
        job,
        id="",
        payload=msgspec.Raw(payload),
        delay_s=None if job.delay_s is None else float(job.delay_s),
        run_at=None if job.run_at is None else job.run_at.astimezone(UTC),
        tags=job.tags or None,
    )
    return _encode(content)

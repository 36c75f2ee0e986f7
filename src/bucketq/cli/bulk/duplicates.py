"""Jobs of one feed that claim the same id or key, and are not the same."""

from __future__ import annotations

from datetime import UTC
from hashlib import blake2b

import msgspec

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob

_encode = msgspec.json.Encoder(order="deterministic").encode


class Doubles:
    """What ids and keys have stood in a feed so far, and where."""

    def __init__(self, name: str, noun: str) -> None:
        """Begin a feed; messages call it ``name``, and its parts by the noun."""
        self._name = name
        self._noun = noun
        self._seen: dict[tuple[str, str], tuple[int, bytes]] = {}

    def add(self, job: NewJob, number: int, *, has_own_id: bool) -> None:
        """Refuse a job if another one has its id or key and other content."""
        if job.key is not None:
            self._compare("key", job.key, number, _all_of(job))
        if has_own_id:
            content = _encode([job.kind, job.payload, job.priority, job.key])
            self._compare("id", job.id, number, content)

    def _compare(self, what: str, value: str, number: int, content: bytes) -> None:
        digest = blake2b(content, digest_size=16).digest()
        first, known = self._seen.setdefault((what, value), (number, digest))
        if known != digest:
            message = (
                f"{self._name}: {self._noun}s {first:,} and {number:,} have the same {what} "
                f"{value!r} but different contents: mend one of them"
            )
            raise InvalidRequestError(message)


def _all_of(job: NewJob) -> bytes:
    """All but the id, which a key stands for; what means the same is written the same."""
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

"""The idempotency keys of a push: which are recognised, and which are dropped for new ones."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

import msgspec
from msgspec import Raw

from bucketq.errors import KeyConflictError, QueueFullError
from bucketq.model.base import NewJob
from bucketq.model.records import KeyRecord
from bucketq.model.requests.request_digest import normalized
from bucketq.model.state import State

FUTURE = timedelta(days=1)
"""A key further in the future than this is not recognised, so that a clock that is wrong by years
does not block the key for years. Hosts that are hours apart still know each other's keys."""

_encode = msgspec.json.Encoder(order="deterministic").encode


def check_key(job: NewJob, known: KeyRecord) -> None:
    """Reject a job whose key belongs to one with other content."""
    if known.digest != digest_of(job):
        raise KeyConflictError(
            f"idempotency key {job.key!r} belongs to job {known.job}, which has other "
            "content; use another key, or push the same content"
        )


def is_valid_key(state: State, key: KeyRecord, now: datetime) -> bool:
    """Whether a key is recognised, by the clock of the writer that pushes it again."""
    return -FUTURE <= now - key.at <= timedelta(seconds=state.settings.key_retention_s)


def keys_to_drop(
    state: State, keyed: dict[str, NewJob], now: datetime, *, must_fit: bool = True
) -> list[str]:
    """The keys to drop so that new ones fit, all of them invalid by the clock of the writer.

    These are the keys that are pushed again, and if there are too many, others. Others are there
    if writers disagree about the time, or in segments: otherwise they have been tidied away.
    """
    if not keyed:
        return []
    settings, known = state.settings, state.known_keys
    there = known.find(keyed)
    replaced = [key for key in keyed if key in there]
    excess = len(known) + len(keyed) - len(replaced) - settings.max_keys
    if len(replaced) == len(keyed) or excess <= 0:
        return replaced
    expired_at, count = now - timedelta(seconds=settings.key_retention_s), excess + len(keyed)
    found = known.before(expired_at, count) + known.after(now + FUTURE, count)
    spare = [key.id for key in found if key.id not in keyed]
    if must_fit and len(spare) < excess:
        raise QueueFullError(
            f"too many idempotency keys: {len(known):,} are remembered, "
            f"{settings.max_keys:,} are allowed (max_keys); push without a key, shorten "
            "key_retention_s, or try again when some have been forgotten"
        )
    return [*replaced, *spare[:excess]]


def digest_of(job: NewJob) -> str:
    """A digest of all that was pushed except the id, which is new at every push.

    What means the same has the same digest, however it was written.
    """
    content = normalized(job)
    content = msgspec.structs.replace(content, id="", payload=_normal(content.payload))
    return blake2b(_encode(content), digest_size=16).hexdigest()


def _normal(payload: Raw) -> Raw:
    try:
        return Raw(_encode(msgspec.json.decode(payload)))
    except msgspec.ValidationError:  # A number that no type of Python holds.
        return payload

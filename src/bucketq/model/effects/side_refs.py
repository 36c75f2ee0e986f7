"""Naming side objects: where a large payload or result goes, and which references are accepted.

A reference is accepted only up to the version in the name of its object. After that a sweep may
have deleted the object, so the client has to write it again under another name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from msgspec import Raw

from bucketq.errors import (
    InvalidRequestError,
    PayloadTooLargeError,
    RejectedError,
    UploadExpiredError,
)
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.operations import Complete, Completion
from bucketq.model.settings import KIB, MIB, Settings
from bucketq.model.side_objects import (
    FEATURE,
    PART_BYTES,
    Content,
    Staged,
    StageObject,
    is_side,
    object_name,
    read_ref,
)
from bucketq.model.state import State

_FORMAT = 2  # An object of format 1 cannot say that its readers must know side objects.
_VERSIONS = 1024
_BYTES_A_VERSION = 64 * KIB
"""How long a side object may be introduced: for a thousand commits, as a segment, and for one more
for so many bytes. A queue that commits 500 times a second reaches that only if the bytes come at
less than 32 MiB a second, and then the client writes them again, under a name with more time."""
_MOST_TRIES = 8
_DIGEST = r"[0-9a-f]{32}"
_NONCE = r"[0-9a-f]{16}"


def stage(state: State, operation: StageObject, _now: datetime) -> Staged:
    """Name the side object of a payload or result, unless it is small enough for its job."""
    settings = state.settings
    check.whole_number(operation.bytes, "bytes", 0)
    setting, limit = _limit(settings, operation.content)
    if operation.bytes > limit:
        raise PayloadTooLargeError(
            f"{operation.content} too large: {operation.bytes:,} bytes, at most {limit:,} are "
            f"allowed ({setting}); raise the setting, or put the data in an object of its own, and "
            "its address here"
        )
    inline_bytes = settings.inline_bytes if settings.max_format >= _FORMAT else MIB
    if operation.bytes <= inline_bytes:
        return Staged("", inline_bytes)
    if settings.max_format < _FORMAT:
        raise RejectedError(
            f"a {operation.content} of more than {MIB:,} bytes needs max_format {_FORMAT}: run "
            "`bucketq upgrade` once every process of the queue has been upgraded"
        )
    if not re.fullmatch(_DIGEST, operation.digest) or not re.fullmatch(_NONCE, operation.nonce):
        raise InvalidRequestError("a side object needs a digest of 32 and a nonce of 16 hex digits")
    check.whole_number(operation.tries, "tries", 0, _MOST_TRIES)
    versions = _VERSIONS + operation.bytes // _BYTES_A_VERSION
    until = state.version + (versions << operation.tries)
    name = object_name(state.incarnation, until, operation.digest, operation.nonce)
    return Staged(name, inline_bytes)


def check_payloads(state: State, jobs: Sequence[NewJob]) -> bool:
    """Check the references among the payloads of a push; return whether there are any."""
    found = False
    for job in jobs:
        if job.payload_encoding is not None and is_side(job.payload_encoding):
            check_ref(state, job.payload, "payload")
            found = True
    return found


def check_completions(state: State, jobs: Sequence[Complete | Completion]) -> bool:
    """Check the references among results and follow-up jobs; return whether there are any."""
    found = False
    for job in jobs:
        if job.result_encoding is not None and is_side(job.result_encoding):
            check_ref(state, job.result, "result")
            found = True
        if job.follow_ups and check_payloads(state, job.follow_ups):
            found = True
    return found


def note_named(state: State) -> None:
    """Note that the next version names side objects."""
    state.requires[FEATURE] = None


def check_ref(state: State, raw: Raw, content: Content) -> None:
    """Check a reference that the next version is to hold.

    Raises:
        UploadExpiredError: A sweep may have deleted the object.
    """
    ref = read_ref(raw, content)
    setting, limit = _limit(state.settings, content)
    if ref.bytes > limit:
        raise PayloadTooLargeError(
            f"{content} too large: {ref.bytes:,} bytes, at most {limit:,} are allowed ({setting})"
        )
    incarnation = ref.object.partition("/")[0]
    if incarnation != state.incarnation:
        raise UploadExpiredError(
            f"the {content} was written for incarnation {incarnation} of the queue, which has "
            "ended; write it again"
        )
    if ref.until <= state.version or state.settings.max_format < _FORMAT:
        raise UploadExpiredError(
            f"the {content} was written too long ago: version {ref.until} was the last that could "
            f"name it, and the queue is at {state.version}; write it again"
        )
    if not ref.digest or ref.digest not in ref.object or ref.part_bytes != PART_BYTES:
        raise InvalidRequestError(f"the reference to the {content} does not fit its object")


def refuse_side(job: NewJob, what: str) -> None:
    """Reject a job that cannot name a side object: those of a schedule would all name the same."""
    if is_side(job.payload_encoding):
        raise InvalidRequestError(f"{what} cannot have a payload that is a side object")


def _limit(settings: Settings, content: Content) -> tuple[str, int]:
    if content not in ("payload", "result"):
        raise InvalidRequestError(f"a side object is a payload or a result, not {content!r}")
    setting = f"max_{content}_bytes"
    limit: int = getattr(settings, setting)
    return setting, limit

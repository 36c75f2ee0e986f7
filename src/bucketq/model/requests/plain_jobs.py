"""New jobs and completions without options, as nearly all are, which are handled together.

To look at each of thousands of jobs for what few of them have, field by field, takes longer than
everything else that a push does with it. So what makes such jobs says so by the type of the tuple.
Only the type differs: a push of ``PlainJobs`` is the same as one of the jobs in any other tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec
from msgspec import Raw

from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.operations import Completion

_id, _kind, _payload = attrgetter("id"), attrgetter("kind"), attrgetter("payload")
_decode_all = msgspec.json.Decoder(list[Raw]).decode


class PlainJobs(tuple[NewJob, ...]):
    """New jobs that have an id, a kind and a payload; every other field is left as it is."""

    __slots__ = ()


class PlainCompletions(tuple[Completion, ...]):
    """Completions without follow-ups, whose results are JSON as they are, or missing."""

    __slots__ = ()


def completions(finished: Sequence[Completion]) -> tuple[Completion, ...]:
    """Return what a ``CompleteMany`` has: ``PlainCompletions`` if they are that."""
    for each in finished:
        if each.result_encoding is not None or each.follow_ups:
            return tuple(finished)
    return PlainCompletions(finished)


def check_plain(jobs: PlainJobs, most_bytes: int) -> int:
    """Check jobs as ``check.plain_job`` does; return how many bytes their payloads have."""
    payloads = [*map(_payload, jobs)]
    if jobs and _have_names(jobs) and _are_bodies(payloads, most_bytes):
        return sum(map(len, payloads))
    return sum([check.plain_job(job, most_bytes) for job in jobs])  # It says what is wrong.


def _have_names(jobs: PlainJobs) -> bool:
    """Whether all surely have a good id and a good kind."""
    ids, kinds = [*map(_id, jobs)], {*map(_kind, jobs)}
    if {*map(type, ids)} != {str} or {*map(type, kinds)} != {str}:
        return False
    try:
        for kind in kinds:
            check.kind(kind)
    except InvalidRequestError:
        return False
    sizes = [*map(len, ids)]
    return min(sizes) > 0 and max(sizes) <= check.MAX_NAME and "".join(ids).isascii()


def _are_bodies(payloads: Sequence[Raw], most_bytes: int) -> bool:
    """Whether all are surely JSON on one line, neither too long nor too deep."""
    if {*map(type, payloads)} != {Raw}:
        return False
    longest = max(map(len, payloads))
    if longest > most_bytes:
        return False
    if longest > check.DEEP_BYTES and any(map(check.is_deep, map(bytes, payloads))):
        return False
    joined = b"[%b]" % b",".join(payloads)
    if b"\n" in joined or b"\r" in joined:
        return False
    try:
        if not joined.isascii():
            joined.decode()
        # Each must be a value by itself, without blanks around it.
        return bool(_decode_all(joined) == payloads)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False

"""Restores a saved copy as a new incarnation of a queue.

The jobs of a large copy are decoded some at a time and go to segments first, and then one
conditional write makes the object that names them. A process that is killed before that write
leaves segments of an incarnation that never began, and the queue as it was; ``bucketq gc
--incarnation`` deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from bucketq.admin.copies import copy_of
from bucketq.admin.deletion import delete_archive, incarnation_of, may_have_segments, version_of
from bucketq.admin.payload_objects import folder_of_queue, restore_payloads
from bucketq.admin.queue_object import (
    ChangedMeanwhileError,
    QueueObject,
    Summary,
    summarize,
)
from bucketq.archive.side_folder import SideFolder
from bucketq.clock import new_id
from bucketq.codec.copied_queue import CopiedQueue
from bucketq.codec.decode import decode
from bucketq.codec.layout import OPENINGS, SEGMENTS
from bucketq.codec.segment_file import SEGMENT_BYTES
from bucketq.codec.tombstone import read_tombstone
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.commit.objects.segment_policy import DEFAULT_POLICY
from bucketq.commit.objects.writer_name import writer_name
from bucketq.commit.upkeep.spiller import encode_spill
from bucketq.errors import (
    CorruptStateError,
    InvalidRequestError,
    NewerFormatError,
    RejectedError,
    StoreRefusedError,
)
from bucketq.model.effects.segment_changes import FORMAT, class_of
from bucketq.model.effects.unique_jobs import FEATURE as UNIQUE
from bucketq.model.history import History
from bucketq.model.job_batches import FEATURE as BATCHES
from bucketq.model.limits import FEATURE as LIMITS
from bucketq.model.operations import Release, Request
from bucketq.model.oversight.audit_notes import note_action
from bucketq.model.partitions import FEATURE as PARTITIONS
from bucketq.model.records import JobRecord
from bucketq.model.requests.sessions import Sessions
from bucketq.model.schedules import FEATURE as SCHEDULES
from bucketq.model.segments import SegmentClass
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.store.base import StoredObject

# More attempts than a job makes between a backup and its restore, and still readable.
_ATTEMPT_STEP = 1000
# Line feeds and fields that this code does not know have room in a segment too.
_PORTION_BYTES = SEGMENT_BYTES * 3 // 4
# A key takes less than a kilobyte.
_PORTION_KEYS = SEGMENT_BYTES // 1024

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Restored:
    """The restored queue, and what it replaced."""

    summary: Summary
    released: int
    """Jobs that were running in the copy, and are queued again."""
    saved: str | None
    """The key of a copy of the replaced object."""
    segments: int = 0
    """How many segments its jobs were written to."""
    refusal: str | None = None
    """Why no more segments were written; the rest is in the object, and moves later."""
    kept_incarnation: str | None = None
    """The replaced incarnation, if it could not be copied as a whole: its segments are kept."""
    lost_payloads: int = 0
    """How many large payloads and results are missing; the jobs that name them will fail."""


@dataclass(frozen=True)
class _Replaced:
    """What is known of the object that is replaced."""

    saved: str | None = None
    state: State | None = None
    version: int = 0
    cold_attempt: int = 0
    """No job in its segments has made more attempts."""
    former: tuple[str, ...] = ()
    """The incarnations that have ended, and whose segments are not needed any more."""
    kept: str | None = None
    """The incarnation whose segments are kept."""


async def restore(
    target: QueueObject,
    body: bytes,
    *,
    overwrite: bool = False,
    payloads: SideFolder | None = None,
) -> Restored:
    """Restore a saved copy as a new incarnation.

    Large payloads and results are copied from the folder of the copy, ``payloads``, or from that of
    the queue.

    Its version is above those of the copy and of the replaced object, and earlier requests are
    answered *unknown*. Jobs that were running are queued again without using up an attempt, since
    their workers are disconnected. Attempt numbers are raised beyond those that any of these
    workers can hold, so that systems that fence by them reject the old workers.

    Raises:
        RejectedError: There is a queue, and ``overwrite`` is not set.
        InvalidRequestError: The copy is the object of a deep queue, without its segments.
        CorruptStateError: The copy is damaged, or a newer bucketq wrote the present object.
        ChangedMeanwhileError: The present object was changed meanwhile; it is left as it is.
    """
    copy = _read_copy(body)
    found = await target.find()
    if found is not None and read_tombstone(found.body) is None and not overwrite:
        raise RejectedError(
            f"there is a queue at {target.url} already; to replace it with the copy, and lose its "
            "jobs, use --replace"
        )
    replaced = _Replaced() if found is None else await _replace(target, found)
    state = copy.state
    _renew(target, state, replaced)
    replacing = (f"replacing {replaced.saved}",) if replaced.saved else ()
    note_action(state, "restore", replacing, target.clock.now(), by=writer_name())
    sources = [folder for folder in (payloads, folder_of_queue(target)) if folder is not None]
    released, segments, refusal, lost = await _fill(target, copy, replaced, sources)
    try:
        await target.write_state(state, None if found is None else found.etag)
    except ChangedMeanwhileError as error:
        if segments:
            advice = (
                f"delete what was written of it with `bucketq gc --incarnation {state.incarnation}`"
            )
            error.args = (f"{error}; {advice}",)
        raise
    return Restored(
        summarize(state), released, replaced.saved, segments, refusal, replaced.kept, lost
    )


def _read_copy(body: bytes) -> CopiedQueue:
    copy = CopiedQueue(body, "the copy", _PORTION_BYTES)
    state = copy.state
    if state.cold.rows.segments:
        raise InvalidRequestError(
            "the copy does not hold the jobs of the segments that it names: it is the object of a "
            "deep queue; make copies with `bucketq backup`, or name the queue itself by its address"
        )
    tables = ((SCHEDULES, state.schedules), (LIMITS, state.limits), (BATCHES, state.batches))
    state.requires = {feature: None for feature, rows in tables if rows}
    if state.partition is not None:
        state.requires[PARTITIONS] = None
    return copy


async def _replace(target: QueueObject, found: StoredObject) -> _Replaced:
    """Save a copy of the object, with all its rows if possible, or finish its deletion."""
    version, stone = version_of(found.body), read_tombstone(found.body)
    if stone is not None:
        await delete_archive(target, found.body)
        return _Replaced(version=version, former=stone.incarnations)
    try:
        state = decode(found.body, target.url).state
    except NewerFormatError:
        raise
    except CorruptStateError:
        saved = await target.save_beside(found.body, "broken")
        return _Replaced(saved, version=version, kept=_incarnation_of_segments(found.body))
    try:
        copy = await copy_of(target, state, found.body)
    except StaleStateError:
        message = f"{target.url} was changed meanwhile, and is left as it is; look again"
        raise ChangedMeanwhileError(message) from None
    except CorruptStateError:  # A segment is lost; the others must stay, for the copy names them.
        saved = await target.save_beside(found.body, "broken")
        return _Replaced(saved, state, version, 0, tuple(state.former), state.incarnation)
    saved = await target.save_beside(copy.body, "replaced")
    former = tuple(state.former)
    if may_have_segments(state):
        former = (*former, state.incarnation)
    return _Replaced(saved, state, version, copy.cold_attempt, former)


def _incarnation_of_segments(body: bytes) -> str | None:
    """The incarnation of a damaged object, if it can be read and seems to have segments."""
    return incarnation_of(body) or None if OPENINGS[SEGMENTS] in body else None


def _renew(target: QueueObject, state: State, replaced: _Replaced) -> None:
    """Make a state the first of a new incarnation; its jobs are as they were."""
    state.incarnation = new_id(target.clock)
    state.former = dict.fromkeys(replaced.former)
    state.version = max(state.version, replaced.version)
    state.commits.clear()
    state.broker = None
    state.history, state.recorder = History(), None
    state.sessions = Sessions(horizon=state.version + 1)
    for worker in list(state.workers):
        state.forget("workers", worker.id)


async def _fill(
    target: QueueObject, copy: CopiedQueue, replaced: _Replaced, sources: list[SideFolder]
) -> tuple[int, int, str | None, int]:
    """Take the jobs of a copy, and write segments, if they are too many for the object.

    Returns how many jobs were released, how many segments were written, why no more were, and how
    many large payloads and results are lost.
    """
    state = copy.state
    lost = await restore_payloads(target, state, list(state.jobs), sources)
    released, segments, refusal = _renew_jobs(target, state, list(state.jobs), replaced), 0, None
    for portion in copy.portions():
        state.add_jobs(portion.jobs)
        state.extra |= {("jobs", name): dict(each) for name, each in portion.unknown.items()}
        lost += await restore_payloads(target, state, portion.jobs, sources)
        released += _renew_jobs(target, state, portion.jobs, replaced)
        if portion.left_bytes and refusal is None:
            count, refusal = await _spill(target, state, portion.left_bytes)
            segments += count
        state.changes.clear()  # The first version has everything; there may be millions.
    if refusal is None:
        count, refusal = await _spill(target, state, 0)
        segments += count
    return released, segments, refusal, lost


def _renew_jobs(
    target: QueueObject, state: State, jobs: Sequence[JobRecord], replaced: _Replaced
) -> int:
    """Release jobs that were running, and raise the numbers of attempts; return how many ran."""
    present, released = replaced.state, 0
    for job in jobs:
        if job.status == "done":
            continue
        if job.unique is not None:
            state.requires[UNIQUE] = None
        if job.status == "running":
            release = Release(job=job.id, lease=job.lease or "")
            apply(state, Request(release), target.clock.now()).result()
            released += 1
        other = None if present is None else present.jobs.get(job.id)
        attempt = max(job.attempt, replaced.cold_attempt if other is None else other.attempt)
        state.put_job(replace(state.jobs.by_id[job.id], attempt=attempt + _ATTEMPT_STEP))
    return released


async def _spill(target: QueueObject, state: State, more_bytes: int) -> tuple[int, str | None]:
    """Write segments, if the rows are too many for the object; return how many, and a refusal.

    ``more_bytes`` of jobs follow. Only the first version of the new incarnation may introduce the
    segments.
    """
    folder, count = target.segments_of(state.incarnation), 0
    for cls, rows in _choose(target, state, more_bytes):
        encoded, spill = await encode_spill(state, cls, rows, state.version + 1, target.clock.now())
        try:
            await folder.put(spill.segment.record.id, encoded.body)
        except StoreRefusedError as error:
            return count, str(error)
        apply(state, Request(spill), target.clock.now()).result()
        count += 1
    return count, None


def _choose(
    target: QueueObject, state: State, more_bytes: int
) -> Iterator[tuple[SegmentClass, list[Any]]]:
    """Yield the oldest rows, until half of what may stay is left, in portions for a segment."""
    if state.settings.max_format < FORMAT:
        return
    now, limit = target.clock.now(), state.settings.spill_bytes
    found = [
        (cls, job, len(_encode(job)))
        for job in state.jobs
        if (cls := class_of(job, now)) is not None
    ]
    left = more_bytes + sum(length for *_, length in found)
    portions: dict[SegmentClass, list[Any]] = {}
    sizes = Counter[SegmentClass]()
    for cls, job, length in found if left > limit else ():
        if left <= limit // 2:
            break
        left -= length
        if sizes[cls] + length > _PORTION_BYTES and cls in portions:
            yield cls, portions.pop(cls)
            sizes[cls] = 0
        portions.setdefault(cls, []).append(job)
        sizes[cls] += length
    yield from portions.items()
    if more_bytes:
        return
    keys = list(state.keys)
    most = DEFAULT_POLICY.most_keys
    keys = keys[: len(keys) - most // 2] if len(keys) > most else []
    for start in range(0, len(keys), _PORTION_KEYS):
        yield "keys", keys[start : start + _PORTION_KEYS]

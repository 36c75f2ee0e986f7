"""Large payloads and results, for the commands that look after a queue as a whole.

Processes that keep a queue open sweep by the markers of uploads. These functions know all names
instead: they read every job of the queue and every line of its archive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from bucketq.admin.queue_object import QueueObject
from bucketq.admin.segment_reader import SegmentReader
from bucketq.archive.archive_layout import Layout
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.side_folder import SideFolder
from bucketq.codec.copied_queue import CopiedQueue
from bucketq.codec.decode import decode
from bucketq.codec.segment_lines import decode_jobs
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.errors import UnavailableError
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import (
    FEATURE,
    SideRef,
    is_side,
    object_name,
    read_ref,
    refs_of,
    write_ref,
)
from bucketq.model.state import State
from bucketq.store.base import ObjectMissingError

_SKEW = timedelta(days=1)
"""How far the clocks of the writers of the archive may be wrong."""
_NONCE_BYTES = 8
_SIDE = b'_encoding":"object'
_PORTION_BYTES = 8 << 20  # As many jobs of a copy are decoded at a time as a segment has.
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
"""Before the first archive that has such names: a compacted archive may be older than its files."""
# Each is lost only if a segment was deleted while it was read, which takes a thousand commits.
_TRIES = 20


@dataclass(frozen=True)
class PayloadCheck:
    """What was found of the large payloads and results of a queue."""

    objects: int
    """How many the jobs of the queue name."""
    size_bytes: int
    missing: tuple[str, ...]
    """Those that are missing or cut off, with the jobs that name them."""
    left_over: int
    """How many the queue does not name: they are named by its archive, are being written, or were
    left by a crash."""


def folder_of_queue(target: QueueObject) -> SideFolder:
    """Return the folder of the large payloads and results of a queue."""
    return SideFolder.of(target.store, target.key, target.clock)


async def sweep_payloads(target: QueueObject) -> int:
    """Delete those that no job and no line of the archive names, nor ever will; return how many.

    Only those of the present incarnation: a copy that a restore has kept names others.
    """
    folder = folder_of_queue(target)
    state = decode((await target.read()).body, target.url).state
    found = {name async for name, _, _ in folder.parts(state.incarnation)}
    found |= {name async for name in folder.markers(state.incarnation)}
    if not found:
        return 0
    state, refs = await _read_refs(target)
    named = {ref.object for _, ref in refs} | await _named_by_archive(target, state)
    return await folder.sweep(sorted(found), state.version, named)


async def check_payloads(target: QueueObject) -> PayloadCheck | None:
    """Compare what jobs name with what is there; None: the queue has never had any."""
    state = decode((await target.read()).body, target.url).state
    if FEATURE not in state.requires:
        return None
    folder = folder_of_queue(target)
    state, refs = await _read_refs(target)
    sizes, parts = Counter[str](), Counter[str]()
    for incarnation in {ref.object.partition("/")[0] for _, ref in refs} | {state.incarnation}:
        async for name, _, size_bytes in folder.parts(incarnation):
            sizes[name] += size_bytes
            parts[name] += 1
    missing = [
        f"{ref.object} of job {job.id}: {parts[ref.object]} of {ref.parts} parts, "
        f"{sizes[ref.object]:,} of {ref.bytes:,} bytes"
        for job, ref in refs
        if (parts[ref.object], sizes[ref.object]) != (ref.parts, ref.bytes)
    ]
    named = {ref.object for _, ref in refs}
    left_over = len(sizes.keys() - named)
    return PayloadCheck(len(refs), sum(ref.bytes for _, ref in refs), tuple(missing), left_over)


async def delete_payloads(
    target: QueueObject, incarnations: Collection[str], *, archive: bool
) -> int:
    """Delete those of incarnations that have ended; return how many.

    Unless the ``archive`` is deleted too, those that its lines name are kept, as long as these.
    """
    folder, deleted = folder_of_queue(target), 0
    named: set[str] | None = set() if archive else None
    for incarnation in incarnations:
        if named is None and [name async for name, _, _ in folder.parts(incarnation)]:
            named = await _named_by_archive(target, None)
        deleted += await folder.clear(incarnation, named or ())
    return deleted


async def save_payloads(target: QueueObject, jobs: Iterable[JobRecord], to: SideFolder) -> int:
    """Copy what jobs name to the folder of a saved copy, under the same names; return how many.

    Raises:
        UnavailableError: One is missing; the copy would not be whole.
    """
    folder, count = folder_of_queue(target), 0
    for job in jobs:
        for ref in refs_of(job):
            try:
                await folder.copy_to(to, ref, ref.object)
            except ObjectMissingError as error:
                message = (
                    f"the side object {ref.object} of job {job.id} is missing ({error}), so there "
                    "is nothing to save of it; cancel the job, or put it back, and try again"
                )
                raise UnavailableError(message) from error
            count += 1
    return count


def large_jobs_in(body: bytes) -> Iterator[JobRecord]:
    """Yield the jobs of a saved copy that name side objects."""
    if _SIDE not in body:
        return
    copy = CopiedQueue(body, "the copy", _PORTION_BYTES)
    yield from filter(refs_of, copy.state.jobs)
    for portion in copy.portions():
        yield from filter(refs_of, portion.jobs)


async def restore_payloads(
    target: QueueObject, state: State, jobs: Iterable[JobRecord], sources: list[SideFolder]
) -> int:
    """Copy what jobs of a restored state name to its own incarnation; return how many are lost.

    The state is not written yet, so its first version introduces them.
    """
    lost = 0
    for job in filter(refs_of, jobs):
        changes: dict[str, object] = {}
        for content in ("payload", "result"):
            raw = getattr(job, content)
            if is_side(getattr(job, f"{content}_encoding")):
                ref = read_ref(raw, content)
                copied = await _copy_in(target, state, ref, sources)
                lost += copied is None
                changes[content] = raw if copied is None else write_ref(copied)
        state.replace_job(job, replace(job, **changes))
        state.requires[FEATURE] = None
    return lost


async def _copy_in(
    target: QueueObject, state: State, ref: SideRef, sources: list[SideFolder]
) -> SideRef | None:
    folder = folder_of_queue(target)
    nonce = target.clock.entropy(_NONCE_BYTES).hex()
    name = object_name(state.incarnation, state.version + 1, ref.digest, nonce)
    for source in sources:
        try:
            await source.copy_to(folder, ref, name)
        except ObjectMissingError:
            await folder.delete(name)
        else:
            return replace(ref, object=name)
    return None


async def _read_refs(target: QueueObject) -> tuple[State, list[tuple[JobRecord, SideRef]]]:
    """Return a version of the queue, and what its jobs name, wherever they are."""
    for _ in range(_TRIES):
        state = decode((await target.read()).body, target.url).state
        found = [(job, ref) for job in state.jobs for ref in refs_of(job)]
        reader = SegmentReader(target, state)
        try:
            for segment in state.cold.rows.segments.values():
                if segment.record.cls != "keys":
                    rows = await reader.segments.read_rows(segment, reader.read_named)
                    jobs, _ = decode_jobs([line for _, line in rows], 0, segment.record.id)
                    found += [(job, ref) for job in jobs for ref in refs_of(job)]
        except StaleStateError:
            continue
        return state, found
    message = f"{target.url} changed too often while it was read; try again"
    raise UnavailableError(message)


async def _named_by_archive(target: QueueObject, state: State | None) -> set[str]:
    """Return what the lines of the archive name."""
    layout, now = Layout.of(target.store.url, target.key), target.clock.now()
    first = _LONG_AGO if state is None else state.created_at
    async for info in target.store.list(layout.root):
        if (archive_file := layout.parse(info.key)) is not None:
            first = min(first, archive_file.hour)
            break
    named: set[str] = set()
    async for some in ArchiveReader(target.store, layout).batches(first - _SKEW, now + _SKEW):
        named |= {ref.object for job in some for ref in refs_of(job)}
    return named

"""Gives up rows of segments that cannot be read, so that a queue is whole again.

Only what is lost anyway leaves the queue. Of a segment that is damaged in part, the rows that can
be read are written to a new segment. Before anything changes, all that can be read of the queue is
saved beside it. If it is unknown which rows of a segment have left, because the vector that says so
is lost, all of them leave: they are saved too, and a person may push them again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bucketq.admin.copies import Copy
from bucketq.admin.deep_check import BadSegment, describe_bad, read_segments
from bucketq.admin.queue_object import ChangedMeanwhileError, QueueObject, Summary, summarize
from bucketq.admin.segment_reader import SegmentReader
from bucketq.codec.decode import decode
from bucketq.codec.inline_copy import RowSpool
from bucketq.codec.segment_check import CheckedSegment
from bucketq.codec.segment_file import encode_segment, segment_row, sort_rows
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.objects.writer_name import writer_name
from bucketq.errors import InvalidRequestError
from bucketq.model.history import break_off
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.oversight.audit_notes import note_action
from bucketq.model.state import State

# A conflict means that the queue was changed within one write; twenty in a row mean a busy queue.
_TRIES = 20
# The new segments may be introduced for so many versions; the next write does it, or one of the
# tries after it.
_VERSIONS = 1024


@dataclass(frozen=True)
class AcceptedLoss:
    """What was given up; no segments: all of them can be read, and nothing was written."""

    summary: Summary
    segments: tuple[BadSegment, ...]
    saved: str | None
    """The key of a copy of all that could be read."""
    doubtful: str | None = None
    """The key of rows that could be read, but may have left before: one on a line."""

    @property
    def lost(self) -> int:
        """How many rows were given up."""
        return sum(bad.lost for bad in self.segments)


async def accept_loss(target: QueueObject, chosen: Collection[str] | None) -> AcceptedLoss:
    """Give up the rows of segments that cannot be read; ``chosen`` is None for all such segments.

    Raises:
        InvalidRequestError: A chosen segment is intact, or the queue does not name it.
        CorruptStateError: The object itself is damaged, or a row is in two places.
        ChangedMeanwhileError: The queue changes too often.
    """
    state = decode((await target.read()).body, target.url).state
    for name in chosen or ():
        if name not in state.cold.rows.segments:
            raise InvalidRequestError(
                f"{target.url} names no segment {name!r}; `bucketq doctor --deep` lists those that "
                "cannot be read"
            )
    copy, found = await _read(target, state, chosen)
    for name in chosen or ():
        if name in state.cold.rows.segments and name not in found:
            raise InvalidRequestError(f"segment {name} can be read, so nothing of it is given up")
    if not found:
        return AcceptedLoss(summarize(state), (), None)
    saved = await target.save_beside(copy.body, "broken")
    lines = [row.line + b"\n" for checked in found.values() for row in checked.doubtful]
    doubtful = await target.save_beside(b"".join(lines), "doubtful") if lines else None
    for _ in range(_TRIES):
        # Read again: rows may have left, and a merge may have dropped a segment.
        stored = await target.read()
        state = decode(stored.body, target.url).state
        try:
            given_up = await _replace(target, state, found)
            break_off(state)
            _note(target, state, given_up)
            await target.write_state(state, stored.etag)
        except (ChangedMeanwhileError, StaleStateError):
            continue
        return AcceptedLoss(summarize(state), given_up, saved, doubtful)
    message = f"{target.url} changes too often to be repaired: pause its workers, and try again"
    raise ChangedMeanwhileError(message)


def _note(target: QueueObject, state: State, given_up: tuple[BadSegment, ...]) -> None:
    about = tuple(f"segment {bad.id}" for bad in given_up)
    now, by = target.clock.now(), writer_name()
    note_action(state, "accept-loss", about, now, by=by, count=len(given_up))


async def _read(
    target: QueueObject, state: State, chosen: Collection[str] | None
) -> tuple[Copy, dict[str, CheckedSegment]]:
    """Copy all that can be read, and find the chosen segments of which something cannot."""
    found: dict[str, CheckedSegment] = {}
    with RowSpool() as spool:
        async for segment, checked in read_segments(target, state):
            if checked is None:
                continue  # The queue no longer names it.
            rows = ((row.seq, row.line) for row in checked.rows)
            spool.add("keys" if segment.record.cls == "keys" else "jobs", rows)
            name = segment.record.id
            if checked.problems and (chosen is None or name in chosen):
                found[name] = checked
        return Copy(summarize(state), spool.finish(state, target.url)), found


async def _replace(
    target: QueueObject, state: State, found: dict[str, CheckedSegment]
) -> tuple[BadSegment, ...]:
    """Let the state name segments with the rows that can be read, instead of the damaged ones."""
    rows, given_up = state.cold.rows, []
    for name, checked in found.items():
        segment = rows.segments.get(name)
        if segment is None:
            continue
        is_known = await SegmentReader(target, state).know_vector(segment) is None
        live = [row for row in checked.rows if is_known and row.position not in segment.gone]
        now = CheckedSegment(checked.problems, live, segment.live - len(live))
        given_up.append(describe_bad(target, state, segment, now))
        rows.drop(segment)
        if live:
            await _write(target, state, segment, now)
    return tuple(given_up)


async def _write(
    target: QueueObject, state: State, segment: Segment, checked: CheckedSegment
) -> None:
    """Put a segment with the rows that can be read, and name it."""
    cls, clock = segment.record.cls, target.clock
    sorted_rows = sort_rows(cls, [segment_row(row.line) for row in checked.rows])
    encoded = encode_segment(cls, sorted_rows)
    record = encoded.record(state.version + _VERSIONS, clock.now())
    folder = SegmentFolder(target.store, target.key, state.incarnation, target.url, clock)
    await folder.put(record.id, encoded.body)
    state.cold.rows.add(record)

"""Reserving, and adopting what was written under a reservation.

A segment that was put under a reservation may be named by one commit only: the one that removes the
reservation. So it can be deleted once a version at or after that of the reservation lists neither,
whatever the clocks say.
"""

from __future__ import annotations

import re
from datetime import datetime

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, RejectedError
from bucketq.model import check, history
from bucketq.model.effects.pushes import is_published, move_writer
from bucketq.model.effects.room import check_room
from bucketq.model.effects.segment_changes import FORMAT
from bucketq.model.job_ids import made_at
from bucketq.model.operations import Request
from bucketq.model.reservations import (
    NAME,
    RENEWALS,
    Adopt,
    DropReservation,
    RenewReservation,
    ReservationRecord,
    Reserve,
    reservation_of,
)
from bucketq.model.segments import CONSECUTIVE, WrittenSegment
from bucketq.model.state import State

REQUIRED = "reservations"
"""What an object with reservations requires of its readers: their sweeps must know of them."""


def reserve(state: State, operation: Reserve, now: datetime) -> str:
    """List a reservation under the version of this very commit."""
    if state.settings.max_format < FORMAT:
        raise RejectedError(
            "segments cannot be written for this queue, because its max_format is "
            f"{state.settings.max_format}; `bucketq upgrade` raises it"
        )
    _check_history(state)
    if not re.fullmatch(NAME, operation.name):
        raise InvalidRequestError("the name of a reservation must be 16 hexadecimal digits")
    if is_published(state, operation):
        return ""
    earlier = [row.id for row in state.reservations if row.writer == operation.writer]
    for each in earlier:
        if each.endswith(f"-{operation.name}"):
            _renew(state, state.reservations.by_id[each], now)
            return each
    if earlier and operation.joins:
        raise RejectedError(
            f"another process has begun to write for {operation.writer} since: let it finish"
        )
    limit = state.settings.max_writers
    if not earlier and len(state.reservations) >= limit:
        raise RejectedError(
            f"too many reservations: the queue has {len(state.reservations):,}, {limit:,} are "
            "allowed (max_writers); they expire by themselves (reservation_retention_s)"
        )
    for each in earlier:
        state.forget("reservations", each)
    row = ReservationRecord(
        id=f"r{state.version + 1:020d}-{operation.name}",
        seq=state.reservations.next_seq,
        writer=operation.writer,
        at=now,
    )
    state.requires[REQUIRED] = None
    _put(state, row)
    return row.id


def renew(state: State, operation: RenewReservation, now: datetime) -> None:
    """Note that the writer of a reservation still works."""
    _renew(state, _listed(state, operation.reservation), now)


def drop(state: State, operation: DropReservation, _now: datetime) -> bool:
    """Remove a reservation; the next sweep deletes what was put under it."""
    if operation.reservation not in state.reservations:
        return False
    state.forget("reservations", operation.reservation)
    return True


def adopt(state: State, operation: Adopt, now: datetime, request: Request) -> bool:
    """Name the segments, move the position and remove the reservation, all in one commit."""
    if is_published(state, operation):
        # Also the reservation of a second process: its rows are those that were published.
        if operation.reservation in state.reservations:
            state.forget("reservations", operation.reservation)
        return False
    _listed(state, operation.reservation)
    _check_history(state)
    segments = () if request.written is None else request.written.segments
    if [each.record for each in segments] != list(operation.segments):
        message = f"the segments of {operation.reservation} were not read before they are adopted"
        raise AssertionError(message)
    for segment in segments:
        _check_entry(operation, segment)
    if any(segment.index.has_unique for segment in segments):
        raise InvalidRequestError(
            "segments with unique jobs cannot be adopted, because their names are not compared "
            "with those of other jobs: push such jobs"
        )
    records = operation.segments
    if len({record.id for record in records}) < len(records):
        raise InvalidRequestError("a segment stands twice in one adoption")
    kinds = {kind for each in segments for kind in each.index.kinds}
    rows, size_bytes = sum(each.rows for each in records), sum(each.bytes for each in records)
    for kind in kinds:
        check.kind(kind)
    check_room(state, rows, size_bytes, kinds)
    move_writer(state, operation, now)
    for segment in segments:
        _name(state, segment, now)
    state.forget("reservations", operation.reservation)
    return True


def _check_history(state: State) -> None:
    """Refuse while history is on: it has every job that is pushed, and these were never read."""
    if history.is_wanted(state.settings):
        raise RejectedError(
            "jobs cannot be added as segments while the queue keeps a history "
            "(history_retention_s): push them in batches"
        )


def _name(state: State, segment: WrittenSegment, now: datetime) -> None:
    record, base = segment.record, state.next_seq
    last = base + record.rows - 1
    entry = replace(record, seq=base, last=last, base=base, pushed_at=now)
    state.add_segment(entry, segment.index)
    state.requires["segments"] = None
    if record.first_id:
        state.requires[CONSECUTIVE] = None
    state.changes.append(("segments", record.id))
    state.next_seq = last + 1


def _renew(state: State, row: ReservationRecord, now: datetime) -> None:
    """Note it in the queue only if that is due: many processes may share a reservation."""
    due_s = state.settings.reservation_retention_s / (2 * RENEWALS)
    if abs((now - row.at).total_seconds()) >= due_s:
        _put(state, replace(row, at=now))


def _put(state: State, row: ReservationRecord) -> None:
    state.reservations.put(row)
    state.changes.append(("reservations", row.id))


def _listed(state: State, reservation: str) -> ReservationRecord:
    found = state.reservations.get(reservation)
    if found is None:
        raise RejectedError(
            f"reservation {reservation} is not listed any more: it expired "
            "(reservation_retention_s), or another process of the same writer has reserved since; "
            "write the rows again"
        )
    return found


def _check_entry(operation: Adopt, segment: WrittenSegment) -> None:
    """Check what the index of a segment does not say."""
    record = segment.record
    reserved = reservation_of(record.id)
    if reserved is None or reserved[0] != operation.reservation:
        raise InvalidRequestError(
            f"segment {record.id} was not put under reservation {operation.reservation}"
        )
    is_whole = record.rows == record.live and not (record.gone or record.vector or record.pushed)
    is_numbered = (record.seq, record.last) == (0, record.rows - 1)
    if record.cls not in ("ready", "later") or not is_whole or not is_numbered:
        raise InvalidRequestError(f"segment {record.id} is not one of a push")
    if record.first_id and (made_at(record.first_id) is None or len(segment.index.runs) != 1):
        raise InvalidRequestError(
            f"segment {record.id} cannot have a first_id: that is for one run of jobs with ids "
            "that were made one after the other"
        )

"""Which jobs a claim gets: the smallest ones of some kinds, by priority and number.

Of a kind whose next job is in a segment only a bound is known until that job is read. So the kind
with the smallest bound is looked at first, and kinds whose turn does not come are not read at all:
a queue may have a thousand of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush, nsmallest

from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.indexes.running_jobs import running_bytes
from bucketq.model.numbered_batches import ClaimBatch
from bucketq.model.operations import Claim
from bucketq.model.records import JobRecord
from bucketq.model.state import State

_KINDS_AHEAD = 64
"""For how many kinds the next jobs are asked for at once, if they may all have a turn: one request
to a store after the other would take seconds."""
_UNUSED = (0, 0)


def take_next(state: State, operation: Claim | ClaimBatch, now: datetime) -> list[JobRecord]:
    """Take the smallest jobs that are due out of their lanes.

    Raises:
        ColdRowsNeededError: Some that may be among them have not been read; nothing was taken.
    """
    taken: list[JobRecord] = []
    try:
        _take_in_order(state, operation, now, taken)
    except ColdRowsNeededError:
        state.put_back(taken)
        raise
    return taken


def _take_in_order(
    state: State, operation: Claim | ClaimBatch, now: datetime, taken: list[JobRecord]
) -> None:
    room = state.settings.max_running_bytes - state.running.size_bytes
    if room <= 0:
        return
    bounds = _bounds_of(state, operation.kinds, now)
    seen: set[int] = set()
    while bounds:
        _, kind = heappop(bounds)
        limit = bounds[0][0] if bounds else None
        try:
            while job := _next_up_to(limit, state, kind, now):
                state.lanes[kind].pop(job)
                if state.has_moved:
                    if job.seq in seen:
                        continue
                    seen.add(job.seq)
                taken.append(job)
                room -= running_bytes(job)
                if len(taken) == operation.limit or room <= 0:
                    return
        except ColdRowsNeededError as needed:
            others = nsmallest(min(operation.limit - len(taken) - 1, _KINDS_AHEAD), bounds)
            more = _parts_of([kind for _, kind in others], state, now)
            # Jobs of two kinds may be in one block.
            parts = dict.fromkeys([*needed.parts, *more])
            raise ColdRowsNeededError(list(parts)) from None
        if (bound := state.bound_of(kind, now)) is not None:
            heappush(bounds, (bound, kind))


def _bounds_of(
    state: State, chosen: Iterable[str], now: datetime
) -> list[tuple[tuple[int, int], str]]:
    """Return a heap of the kinds that may have jobs, by what none of their jobs comes before."""
    kinds = dict.fromkeys(chosen or state.kinds_waiting())
    for kind in state.paused_kinds:
        kinds.pop(kind, None)
    if len(kinds) == 1:
        return [(_UNUSED, kind) for kind in kinds]  # There is nothing to compare it with.
    each = ((state.bound_of(kind, now), kind) for kind in kinds)
    bounds = [(bound, kind) for bound, kind in each if bound is not None]
    heapify(bounds)
    return bounds


def _next_up_to(
    limit: tuple[int, int] | None, state: State, kind: str, now: datetime
) -> JobRecord | None:
    """Return the next job of a kind, unless another kind may have a smaller one.

    Then nothing is read for this one: its turn may never come, and there may be many kinds.
    """
    if limit is None:
        return state.head_of(kind, now)
    bound = state.bound_of(kind, now)
    if bound is None or bound > limit:
        return None
    job = state.head_of(kind, now)
    return job if job is not None and job.order <= limit else None


def _parts_of(kinds: Sequence[str], state: State, now: datetime) -> list[SegmentPart]:
    """Return what has to be read for the next jobs of some kinds."""
    parts = []
    for kind in kinds:
        try:
            state.head_of(kind, now)
        except ColdRowsNeededError as needed:
            parts += needed.parts
    return parts

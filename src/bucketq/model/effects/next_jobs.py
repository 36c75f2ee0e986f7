"""Which jobs a claim gets: the smallest ones of some kinds, by priority and number.

That is so in a queue without groups and limits; ``turns`` has the order of others.

Of a kind whose next job is in a segment only a bound is known until that job is read. So the kind
with the smallest bound is looked at first, and kinds whose turn does not come are not read at all:
a queue may have a thousand of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappushpop, nsmallest
from math import inf

from bucketq.model.effects.limits.turns import Turns, has_turns
from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.indexes.expiring_jobs import FEATURE as EXPIRY
from bucketq.model.indexes.lane import FirstOfLane
from bucketq.model.indexes.running_jobs import running_bytes
from bucketq.model.operations import AnyClaim, Claim
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import payload_size
from bucketq.model.state import State

_KINDS_AHEAD = 64
"""For how many kinds the next jobs are asked for at once, if they may all have a turn: one request
to a store after the other would take seconds."""


def take_next(state: State, operation: AnyClaim, now: datetime) -> list[JobRecord]:
    """Take the smallest jobs that are due out of their lanes.

    Raises:
        ColdRowsNeededError: Some that may be among them have not been read; nothing was taken.
    """
    load = _Load(operation, state.settings.max_running_bytes - state.running.size_bytes)
    take = _take_turns if has_turns(state) else _take_in_order
    try:
        if not load.is_full:
            take(state, operation.kinds, now, load)
    except ColdRowsNeededError:
        state.put_back(load.jobs)
        raise
    return load.jobs


def has_next(state: State, kinds: tuple[str, ...], now: datetime) -> bool:
    """Whether there is a job for a claim of some kinds. Raises ``ColdRowsNeededError``.

    Jobs in segments may all have expired, if some of the queue expire: then they are read.
    """
    if has_turns(state):
        return Turns(state, kinds, now).next() is not None
    find = state.waiting.head_of if EXPIRY in state.requires else state.waiting.first_of
    return any(
        kind not in state.paused_kinds and find(kind, now) is not None
        for kind in kinds or tuple(state.kinds_waiting())
    )


def _take_turns(state: State, kinds: tuple[str, ...], now: datetime, load: _Load) -> None:
    turns = Turns(state, kinds, now)
    try:
        while not load.is_full and (job := turns.next()) is not None:
            if load.has(job):
                turns.drop(job)
            elif load.take([job]):
                turns.take(job)
    except ColdRowsNeededError:
        turns.undo()
        raise
    if load.jobs:
        turns.commit()


class _Load:
    """The jobs that a claim has taken so far, and how much more it may take."""

    def __init__(self, operation: AnyClaim, room: int) -> None:
        """Take up to the limit of an operation, until the ``room`` of running jobs is used up."""
        self.jobs: list[JobRecord] = []
        self.left = operation.limit
        self.is_full = room <= 0
        self._room = room
        self._bytes_left = _most_bytes(operation)
        self._seen: set[int] = set()

    def has(self, job: JobRecord) -> bool:
        """Whether a job was taken before: one that was moved may stand in its lane twice."""
        return job.seq in self._seen

    def take(self, jobs: Sequence[JobRecord]) -> int:
        """Take jobs until it is full; return how many can leave their lane."""
        if self._take_all(jobs):
            return len(jobs)
        for count, job in enumerate(jobs):
            if job.seq in self._seen:
                continue
            if self._bytes_left != inf:
                self._bytes_left -= payload_size(job)
                if self._bytes_left < 0 and self.jobs:
                    self.is_full = True
                    return count
            self._seen.add(job.seq)
            self.jobs.append(job)
            self.left -= 1
            self._room -= running_bytes(job)
            if self._room <= 0 or not self.left:
                self.is_full = True
                return count + 1
        return len(jobs)

    def _take_all(self, jobs: Sequence[JobRecord]) -> bool:
        """Take all of these jobs, if there is room for them and none was taken before."""
        seen = {job.seq for job in jobs}
        if len(seen) < len(jobs) or len(jobs) > self.left or not seen.isdisjoint(self._seen):
            return False
        room = self._room - sum(map(running_bytes, jobs))
        bytes_left = self._bytes_left
        if bytes_left != inf:
            bytes_left -= sum(map(payload_size, jobs))
        if room <= 0 or bytes_left < 0:
            return False
        self._room, self._bytes_left = room, bytes_left
        self._seen |= seen
        self.jobs += jobs
        self.left -= len(jobs)
        self.is_full = not self.left
        return True


def _take_in_order(state: State, kinds: tuple[str, ...], now: datetime, load: _Load) -> None:
    waiting = state.waiting
    firsts = _firsts_of(state, kinds, now)
    first = heappop(firsts) if firsts else None
    while first is not None:
        _, kind, job = first
        if job is None:
            _decode_head(state, kind, now, firsts, load.left - 1)
        else:
            lane = waiting.lanes[kind]
            if jobs := waiting.next_run(kind, load.left, firsts[0][0] if firsts else None):
                lane.skip(load.take(jobs))
            elif load.take([job]):
                lane.pop(job)
            if load.is_full:
                return
        if (first := waiting.first_of(kind, now)) is not None:
            first = heappushpop(firsts, first)
        elif firsts:
            first = heappop(firsts)


def _most_bytes(operation: AnyClaim) -> float:
    """Return how many bytes the payloads of a claim may have, unless it gets one job."""
    return inf if isinstance(operation, Claim) else operation.max_bytes or inf


def _firsts_of(state: State, chosen: Iterable[str], now: datetime) -> list[FirstOfLane]:
    """Return a heap of the kinds that may have jobs."""
    firsts = [
        first
        for kind in dict.fromkeys(chosen or state.kinds_waiting())
        if kind not in state.paused_kinds
        and (first := state.waiting.first_of(kind, now)) is not None
    ]
    heapify(firsts)
    return firsts


def _decode_head(
    state: State, kind: str, now: datetime, others: Sequence[FirstOfLane], more: int
) -> None:
    """Decode the next job of a kind.

    Raises:
        ColdRowsNeededError: It was not read, and perhaps what ``more`` jobs after it need.
    """
    try:
        state.waiting.head_of(kind, now, more + 1)
    except ColdRowsNeededError as needed:
        kinds = [other for _, other, _ in nsmallest(min(more, _KINDS_AHEAD), others)]
        # Jobs of two kinds may be in one block.
        parts = dict.fromkeys([*needed.parts, *_parts_of(kinds, state, now)])
        raise ColdRowsNeededError(list(parts)) from None


def _parts_of(kinds: Sequence[str], state: State, now: datetime) -> list[SegmentPart]:
    """Return what has to be read for the next jobs of some kinds."""
    parts = []
    for kind in kinds:
        try:
            state.waiting.head_of(kind, now)
        except ColdRowsNeededError as needed:
            parts += needed.parts
    return parts

"""``WaitingJobs``: the jobs that are due, in a lane for each kind and group.

Jobs in segments are decoded and put into their lanes when their turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.cold_jobs import ColdJobs
from bucketq.model.indexes.expiring_jobs import ExpiringJobs
from bucketq.model.indexes.lane import FirstOfLane, Lane, lane_of
from bucketq.model.records import JobRecord


class WaitingJobs:
    """The jobs of one state that can be claimed, by lanes."""

    def __init__(
        self,
        jobs: dict[str, JobRecord],
        cold: ColdJobs,
        delayed: AgeIndex[JobRecord],
        expiring: ExpiringJobs,
    ) -> None:
        """Begin with empty lanes."""
        self.lanes: dict[str, Lane] = {}
        self._jobs = jobs
        self._cold = cold
        self.turns = cold.turns
        """The groups that have jobs, decoded or not."""
        self._delayed = delayed
        self._expiring = expiring

    def add(self, job: JobRecord) -> None:
        """Add a job that is due."""
        if job.group:
            self.turns.note(job.kind, job.group, job.priority)
            self.lane(lane_of(job.kind, job.group)).add(job)
        else:
            self.lane(job.kind).add(job)

    def put_back(self, jobs: Iterable[JobRecord]) -> None:
        """Add jobs that a claim has taken and does not get, in its order."""
        lanes: dict[str, list[JobRecord]] = {}
        for job in jobs:
            if job.group:
                self.add(job)
            else:
                lanes.setdefault(job.kind, []).append(job)
        for name, some in lanes.items():
            self.lane(name).insert(some)

    def extend(self, jobs: Iterable[JobRecord]) -> list[tuple[str, int]]:
        """Add jobs that are due and have no group; return how many of each kind there are."""
        kinds: dict[str, list[JobRecord]] = {}
        for job in jobs:
            kinds.setdefault(job.kind, []).append(job)
        for kind, some in kinds.items():
            self.lane(kind).extend(some)
        return [(kind, len(some)) for kind, some in kinds.items()]

    def lane(self, name: str) -> Lane:
        """Return a lane, which may be new."""
        if (lane := self.lanes.get(name)) is None:
            lane = self.lanes[name] = Lane()
        return lane

    def take_out(self, jobs: Iterable[JobRecord]) -> None:
        """Take jobs out of their lanes, wherever they stand; those in segments are in none."""
        lanes: dict[str, set[int]] = {}
        for job in jobs:
            name = lane_of(job.kind, job.group) if job.group else job.kind
            lanes.setdefault(name, set()).add(job.seq)
        for name, numbers in lanes.items():
            if (lane := self.lanes.get(name)) is not None:
                lane.remove(numbers)

    def sweep(self, job: JobRecord, count: int) -> None:
        """Tidy the lane of a job that has left; ``count`` jobs of its kind wait."""
        lane = self.lanes.get(lane_of(job.kind, job.group))
        if lane is not None and job.group:
            lane.sweep(self._jobs, None)
        elif lane is not None:
            lane.sweep(self._jobs, count - self._cold.count_undecoded(job.kind))

    def first_of(self, name: str, now: datetime) -> FirstOfLane | None:
        """The beginning of the jobs of a lane that are due; None: there are none."""
        lane = self.lanes.get(name)
        job = None if lane is None else self._decoded_head(name, lane, now)
        bound = self._cold.bound_of(name) if self._cold.lanes else None
        if job is not None and (bound is None or job.order < bound):
            return job.order, name, job
        return None if bound is None else (bound, name, None)

    def next_run(self, kind: str, most: int, before: tuple[int, int] | None) -> list[JobRecord]:
        """Return ``Lane.next_run`` of a kind, up to the next job that has to be decoded."""
        bound = self._cold.bound_of(kind) if self._cold.lanes else None
        if bound is not None and (before is None or bound < before):
            before = bound
        return self.lanes[kind].next_run(self._jobs, most, before)

    def head_of(self, name: str, now: datetime, wanted: int = 1) -> JobRecord | None:
        """The next job of a lane that is due, or None. Raises ``ColdRowsNeededError``.

        ``wanted`` is how many jobs the caller will ask for, one after the other.
        """
        while (first := self.first_of(name, now)) is not None:
            if first[2] is not None:
                return first[2]
            if jobs := self._cold.decode_next(name, wanted):
                self.lane(name).insert(jobs)
        return None

    def _decoded_head(self, name: str, lane: Lane, now: datetime) -> JobRecord | None:
        while (job := lane.head(self._jobs)) is not None:
            if job.run_at is not None and job.run_at > now:
                lane.pop(job)  # The clock was set back since it was promoted.
                self._delayed.add(job)
            elif job.expires_at is not None and job.has_expired(now):
                lane.pop(job)
                self._expiring.skip(job)
            else:
                return job
        del self.lanes[name]
        return None

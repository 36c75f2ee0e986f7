"""``Stats``: a queue in numbers, as it is answered."""

from __future__ import annotations

from msgspec import Struct

from bucketq.model.limits import LimitInfo
from bucketq.model.records import BrokerRecord, Status


class CommitStats(Struct, frozen=True, kw_only=True):
    """The commits of a broker, counted since it leads and measured lately."""

    commits: int
    """How many it has made."""
    conflicts: int
    """How many of its writes were lost to another writer, and were made again."""
    storage_errors: int
    """How many requests for the object the storage did not answer, or refused."""
    measured: int = 0
    """How many of the latest commits the percentiles are of; they are zero if it is."""
    took_s: tuple[float, float] = (0.0, 0.0)
    """Percentiles 50 and 99 of their durations, with encoding and retries."""
    size_bytes: tuple[int, int] = (0, 0)
    """The same of the bytes that each has written."""
    requests: tuple[int, int] = (0, 0)
    """The same of the requests that have shared each."""


class StatsSample(Struct, frozen=True, gc=False, array_like=True):
    """What a broker counted at a time; on the wire an array, because there are many.

    None: it could not be counted without reading segments.
    """

    age_s: float
    """How long ago that was. A time would be that of a clock that the reader does not have."""
    version: int
    queued: int
    running: int
    done: int
    dead: int
    delayed: int | None
    """How many of the queued jobs were not due."""
    oldest_queued_s: float | None
    """How long the oldest waiting job had been waiting; 0: there was none."""
    bytes: int
    pushed: int
    """How many jobs had ever been pushed."""
    commit_p50_s: float | None = None
    commit_p99_s: float | None = None
    """How long the commits of the minute before took; None: there were none."""


class Stats(Struct, frozen=True, kw_only=True):
    """The queue in numbers."""

    version: int
    counts: dict[str, dict[str, int]]
    """By kind, then by status."""
    oldest_queued_s: float | None
    """How long the oldest waiting job has been waiting."""
    bytes: int
    """The size of the queue: of its object, and of the rows in segments that have not left."""
    paused: bool
    paused_kinds: tuple[str, ...]
    broker: BrokerRecord | None
    keys: int
    sessions: int
    incarnation: str = ""
    """Which queue it is: a restored or recreated one has another; an older broker does not say."""
    segments: int = 0
    """How many segments hold rows of the queue; an older broker does not know."""
    segment_bytes: int = 0
    """About how many bytes of them are rows that have not left."""

    limited: tuple[LimitInfo, ...] = ()
    """The limits that let no job start at this moment; an older broker does not know."""
    held: dict[str, int] = {}
    """How many of the queued jobs of each kind wait for others; an older broker does not know."""
    partitions: int = 0
    """How many partitions were added up; 0: the queue has none."""
    pushed: int = 0
    """How many jobs were ever pushed; an older broker does not know."""
    delayed: dict[str, int] = {}
    """How many of the queued jobs of each kind are not due yet; an older broker does not know. Of
    jobs in segments, some that fell due since the last claim may be counted."""
    commit_stats: CommitStats | None = None
    """The work of the broker that answered; None: none did, or an older one."""
    samples: tuple[StatsSample, ...] | None = None
    """What the broker that answered counted since it leads, at most a day, oldest first, if that
    was asked for; None: it was not, no broker answered, or an older one."""

    @property
    def head_bytes(self) -> int:
        """The size of the object, which every commit writes."""
        return self.bytes - self.segment_bytes

    @property
    def ended(self) -> int:
        """How many of all jobs have ended and are not dead; most of them are archived."""
        left = self.total("queued") + self.total("running") + self.total("dead")
        return max(0, self.pushed - left)

    def total(self, status: Status) -> int:
        """How many jobs of all kinds have this status."""
        return sum(by_status.get(status, 0) for by_status in self.counts.values())

    def unclaimed(self) -> dict[str, int]:
        """How many jobs are due of each kind that has none running, and is not paused.

        Perhaps no worker has a handler for it; perhaps they were just pushed.
        """
        if self.paused:
            return {}
        return {
            kind: waiting
            for kind, by_status in self.counts.items()
            if (
                waiting := by_status.get("queued", 0)
                - self.held.get(kind, 0)
                - self.delayed.get(kind, 0)
            )
            > 0
            and not by_status.get("running")
            and kind not in self.paused_kinds
        }

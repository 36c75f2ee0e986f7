"""``HandlerQueue``: how the handlers of a worker reach its queue."""

from __future__ import annotations

from bucketq.base32 import crockford
from bucketq.clock import Clock, id_time
from bucketq.model.job_ids import TIME_LENGTH
from bucketq.model.operations import LeaseRef
from bucketq.model.settings import Settings
from bucketq.queue.promised_jobs import FollowUps
from bucketq.queue.push_options import UNLIMITED


class HandlerQueue:
    """What all handlers of a worker, or of a process that runs handlers for it, share."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.settings: Settings = UNLIMITED
        """Those of the queue, as far as they are known."""

    def follow_ups(self, lease: LeaseRef) -> FollowUps:
        """Return an empty list of jobs that are pushed with the completion under a lease."""
        time = crockford(id_time(self._clock), TIME_LENGTH)
        return FollowUps(lease.lease, time, self.settings)

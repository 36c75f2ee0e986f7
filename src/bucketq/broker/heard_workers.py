"""``HeardWorkers``: the workers that a broker has heard, in its memory.

An announcement costs no commit. Nothing is written down for a successor: workers announce
themselves to it within a heartbeat. Only a worker that was asked to finish has a row in the object,
because the request must outlive the broker.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bucketq.model.state import State
from bucketq.model.worker_records import Announce, WorkerRecord


class HeardWorkers:
    """Tracks which workers announce themselves to one broker."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[Announce, float]] = {}
        """What each said last, and when by the loop's time; the one heard longest ago first."""

    def hear(self, worker: Announce, state: State, now_s: float) -> None:
        """Note what a worker says of itself. If there are too many, a new one is not listed."""
        known = self._heard.pop(worker.id, None)
        if worker.leaving:
            return
        self._forget(state.settings.worker_retention_s, now_s)
        if known is not None or len(self._heard) < state.settings.max_workers:
            self._heard[worker.id] = (worker, now_s)

    def rows(self, state: State, now: datetime, now_s: float) -> tuple[WorkerRecord, ...]:
        """Return the workers that were heard lately, as rows."""
        self._forget(state.settings.worker_retention_s, now_s)
        found = []
        for worker, heard_s in self._heard.values():
            found.append(worker.row(0, now - timedelta(seconds=max(0.0, now_s - heard_s))))
        return tuple(found)

    def named(self, name: str) -> list[Announce]:
        """Return what the workers of a name, or the one with an id, said last."""
        heard = (worker for worker, _ in self._heard.values())
        return [worker for worker in heard if name in (worker.name, worker.id)]

    def _forget(self, retention_s: float, now_s: float) -> None:
        """Forget those that are silent."""
        while self._heard:
            worker_id, (_, heard_s) = next(iter(self._heard.items()))
            if heard_s >= now_s - retention_s:
                return  # All others were heard later.
            del self._heard[worker_id]

"""What the archive of a simulated queue holds, and since when."""

from __future__ import annotations

import msgspec

from bucketq.archive.archive_layout import Layout
from bucketq.model.records import JobRecord
from simulator.call_log import CallLog


class ArchivedJobs:
    """The copies of each job in the archive."""

    def __init__(self, history: CallLog) -> None:
        """Follow the archive of a simulation that begins."""
        self.copies: dict[str, list[tuple[float, JobRecord]]] = {}
        """The copies of each job, each with the time at which it landed."""
        self._commits = history.store.commits
        self._layout = Layout.of("", history.key)
        self._next = 0

    def follow(self) -> None:
        """Add what landed since the last call."""
        for commit in self._commits[self._next :]:
            if commit.body is not None and self._layout.parse(commit.key) is not None:
                for line in commit.body.splitlines():
                    job = msgspec.json.decode(line, type=JobRecord)
                    self.copies.setdefault(job.id, []).append((commit.time_s, job))
        self._next = len(self._commits)

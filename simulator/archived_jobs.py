"""What the archive of a simulated queue holds, and since when."""

from __future__ import annotations

import msgspec

from bucketq.archive import Layout
from bucketq.model.records import JobRecord
from simulator.call_history import CallHistory


def read_archive(history: CallHistory) -> dict[str, list[tuple[float, JobRecord]]]:
    """Return the copies of each job, each with the time at which it landed."""
    archived: dict[str, list[tuple[float, JobRecord]]] = {}
    layout = Layout.of("", history.key)
    for commit in history.store.commits:
        if commit.body is not None and layout.parse(commit.key) is not None:
            for line in commit.body.splitlines():
                job = msgspec.json.decode(line, type=JobRecord)
                archived.setdefault(job.id, []).append((commit.time_s, job))
    return archived

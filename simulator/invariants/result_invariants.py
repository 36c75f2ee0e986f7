"""Where results are: what leaves with a result is known, and what the index names exists.

At every commit each job that left with a result is in the index of that version, and every object
to which rows of the index have moved is in the store, with these rows.
"""

from __future__ import annotations

from bucketq.codec.result_index import decode_result_index, is_result_index_id
from bucketq.model.records import JobRecord
from bucketq.model.results import ResultRow
from bucketq.model.state import State
from simulator.invariants.broker_invariants import Violation
from simulator.invariants.segment_invariants import segment_key
from simulator.watched_store import WatchedStore

KNOWN = "a result that left is known"
EXISTS = "where results are exists"
IN_TIME = "an index of results is introduced in time"


class ResultTracker:
    """The index of results in one chain of commits."""

    def __init__(self, store: WatchedStore, key: str) -> None:
        self._commits = store.commits
        self._next = 0
        self._key = key
        self._stored: dict[str, list[ResultRow]] = {}
        """The objects with rows that are in the store, by their keys."""
        self._before: State | None = None

    def follow(self, version: int, number: int, head: State) -> Violation | None:
        """Check one version, which is a commit of this number; return a violation, or None."""
        before, self._before = self._before, head
        self._read_until(number - 1)
        groups = list[list[ResultRow]]()
        for row in head.results:
            if not row.has_moved:
                groups.append([row])
                continue
            if (before is None or row.id not in before.results) and version > int(row.id[:20]):
                return IN_TIME, f"{row.id} in version {version}"
            found = self._stored.get(segment_key(self._key, head.incarnation, row.id))
            if found is None or sum(each.count for each in found) != row.count:
                return EXISTS, f"{row.id} in version {version}"
            groups.append(found)
        for job in before.jobs if before is not None else ():
            is_gone = job.id not in head.jobs or head.jobs.by_id[job.id].seq != job.seq
            if is_gone and _has_result(job):
                rows = (row for group in reversed(groups) for row in group)
                if not any(row.may_have(job.id) for row in rows):
                    return KNOWN, f"{job.id} left in version {version}"
        return None

    def _read_until(self, number: int) -> None:
        """Note what was put and deleted up to a write of the store."""
        for commit in self._commits[self._next : number]:
            name = commit.key.rpartition("/")[2]
            if is_result_index_id(name) and commit.body is None:
                del self._stored[commit.key]
            elif is_result_index_id(name) and commit.body is not None:
                self._stored[commit.key] = decode_result_index(name, commit.body, name)
        self._next = number


def _has_result(job: JobRecord) -> bool:
    return job.status == "done" and bytes(job.result) not in (b"", b"null")

"""Side objects: what a job names is there, is named in time and by one job, and others are swept.

At every commit, all parts of everything that a job names are in the store; so they are in the end
for what the archive names. What no job names is deleted once no version can name it any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from bucketq.model.records import JobRecord
from bucketq.model.side_objects import is_side, read_ref, refs_of, until_of
from bucketq.model.state import State
from bucketq.testing.simulated_store import SimulatedStore
from simulator.invariants.broker_invariants import Violation

EXISTS = "what a job names exists"
IN_TIME = "a payload is introduced in time"
ONE_JOB = "no two jobs name one payload"
SWEPT = "what no job names is swept"
_ROOT = "queue/payloads/"
_SWEPT_WITHIN_S = 60.0
"""Several sweeps of a world that sweeps all the time."""


def payload_in(store: SimulatedStore, job: JobRecord) -> bytes:
    """Return the payload of a job, wherever it is, even if it was deleted."""
    if not is_side(job.payload_encoding):
        return bytes(job.payload)
    ref = read_ref(job.payload, "payload")
    parts = (store.history(_key(ref.object, part)) for part in range(ref.parts))
    return b"".join(next((c.body for c in part if c.body), b'""') for part in parts)


class PayloadTracker:
    """The side objects of one chain of commits."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._bearers: dict[str, str] = {}
        """The job that names each object."""

    def follow(self, version: int, number: int, state: State) -> Violation | None:
        """Check one version, which is a commit of this number; return a violation, or None."""
        for job in state.jobs:
            for ref in refs_of(job):
                name = ref.object
                if name not in self._bearers and version > ref.until:
                    return IN_TIME, f"{name} of {job.id} in version {version}"
                if self._bearers.setdefault(name, job.id) != job.id:
                    return ONE_JOB, f"{name} of {job.id} and {self._bearers[name]}"
                if not all(self._is_there(name, part, number) for part in range(ref.parts)):
                    return EXISTS, f"{name} of {job.id} in version {version}"
        return None

    def finish(
        self, archived: Iterable[JobRecord], versions: list[float], *, is_swept: bool
    ) -> Violation | None:
        """Check what is left; ``versions`` has the time of each version.

        ``is_swept`` is whether the processes of this world sweep all the time.
        """
        last = len(self._store.commits) + 1
        for job in archived:
            for ref in refs_of(job):
                self._bearers.setdefault(ref.object, job.id)
                if not all(self._is_there(ref.object, part, last) for part in range(ref.parts)):
                    return EXISTS, f"{ref.object} of the archived job {job.id}"
        limit_s = self._store.loop.time() - _SWEPT_WITHIN_S
        version = sum(at_s <= limit_s for at_s in versions)
        for commit in self._store.commits if is_swept else ():
            name, dot, _ = commit.key.removeprefix(_ROOT).rpartition(".")
            is_part = dot and commit.key.startswith(_ROOT) and "/pending/" not in name
            if not is_part or name in self._bearers or commit.body is None:
                continue
            is_old = commit.time_s <= limit_s and until_of(name) <= version
            if is_old and self._store.history(commit.key)[-1].body is not None:
                return SWEPT, name
        return None

    def _is_there(self, name: str, part: int, number: int) -> bool:
        """Whether a part was there before a commit of the store."""
        before = [c for c in self._store.history(_key(name, part)) if c.number < number]
        return bool(before) and before[-1].body is not None


def _key(name: str, part: int) -> str:
    return f"{_ROOT}{name}.{part:05d}"

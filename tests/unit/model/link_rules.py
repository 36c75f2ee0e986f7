"""What the machine does with batches, and with jobs that wait for others."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec import Raw

from bucketq.model.base import NewJob
from bucketq.model.job_batches import CancelBatch, CancelJobs, CloseBatch, OpenBatch, ReadBatches
from bucketq.model.operations import AnyOperation, Request
from bucketq.model.state import State
from bucketq.model.transitions import apply

BATCHES = ("b1", "b2", "b3")
names = st.sampled_from(BATCHES)
_NEVER = 95  # From this number on, a job is named that is not there.
DONE = NewJob(id="", kind="c", payload=Raw(b"1"), priority=1)


class LinkRules:
    """Rules for batches; ``push`` gives jobs their batches, and what they wait for."""

    ids: list[str]
    now: Any
    reference: Any

    @property
    def state(self) -> State:
        """The state of the model."""
        raise NotImplementedError

    def send(self, operation: AnyOperation, by: tuple[str, int] = ("", 0)) -> None:
        """Send a new request."""
        raise NotImplementedError

    def give_links(self, jobs: list[dict[str, Any]], fresh: list[str]) -> None:
        """Let jobs wait mostly for those that are there, or stand before them in this push."""
        for place, job in enumerate(jobs):
            numbers = job.pop("after", ())
            others = [*self.state.jobs.by_id, *fresh[:place]] or self.ids
            found = [others[n % len(others)] if n < _NEVER else "never" for n in numbers]
            if after := tuple(name for name in dict.fromkeys(found) if name != fresh[place]):
                job["after"] = after
            else:
                job.pop("on_failed", None)

    @rule(name=names, calls_back=st.booleans(), by=st.sampled_from([("", 0), ("x", 2)]))
    def open_batch(self, name: str, calls_back: bool, by: tuple[str, int]) -> None:
        self.send(OpenBatch(batch=name, on_done=DONE if calls_back else None), by)

    @rule(name=names, by=st.sampled_from([("", 0), ("y", 2)]))
    def close_batch_of_jobs(self, name: str, by: tuple[str, int]) -> None:
        self.send(CloseBatch(batch=name), by)
        found = apply(self.state, Request(ReadBatches()), self.now)
        assert found.answer == tuple(self.reference.batches.values())

    @rule(name=names, by=st.sampled_from([("", 0), ("y", 2)]))
    def cancel_batch(self, name: str, by: tuple[str, int]) -> None:
        self.send(CancelBatch(batch=name), by)

    @rule(name=names, limit=st.integers(1, 3), by=st.sampled_from([("", 0), ("y", 2)]))
    def cancel_jobs(self, name: str, limit: int, by: tuple[str, int]) -> None:
        self.send(CancelJobs(batch=name, limit=limit), by)

    def check_links(self, state: State) -> None:
        """Batches are those of the reference, and who waits for whom follows from the rows."""
        assert list(state.batches) == list(self.reference.batches.values())
        held = [job for job in state.jobs if job.is_held]
        waiting: dict[str, set[str]] = {}
        for job in held:
            for name in job.after:
                waiting.setdefault(name, set()).add(job.id)
        assert {name: set(some) for name, some in state.followed.waiting.items()} == waiting
        assert state.followed.held_count == len(held)
        assert sum(state.followed.count_held().values()) == len(held)
        assert not state.followed.ends
        assert (state.followed.held_bytes > 0) is bool(held)

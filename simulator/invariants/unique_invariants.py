"""Whether unique names were respected, at every commit and in every answer.

At most one job of a name is queued or running, if its pushes ask for that scope and none of its
jobs was redriven. No job of a name is added while another one waits, whatever the scope. A push
that answers with a job that was there names one that had the name in scope.
"""

from __future__ import annotations

from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.call_log import CallLog, RecordedCall
from simulator.invariants.queue_invariants import CommitChain

_OPEN = ("queued", "running")
_WIDE = "queued+running"


class UniqueTracker:
    """Follows the jobs with unique names through the chain of commits."""

    def __init__(self) -> None:
        """Begin before the first commit."""
        self._redriven = set[str]()

    def follow(self, before: State | None, state: State) -> tuple[str, str] | None:
        """Check one version; return the broken promise and how it was broken, or None."""
        holders: dict[tuple[str, str], list[JobRecord]] = {}
        for job in state.jobs:
            if job.unique is not None and job.status in _OPEN:
                holders.setdefault((job.kind, job.unique), []).append(job)
        old_jobs = before.jobs.by_id if before is not None else {}
        for name, jobs in holders.items():
            for job in jobs:
                old = old_jobs.get(job.id)
                if old is not None and old.status == "dead":
                    self._redriven.add(job.id)
            once = [job.id for job in jobs if job.id not in self._redriven]
            if name[1].startswith(_WIDE) and len(once) > 1:
                return "a unique name is taken once", f"{name} is that of {once}"
            added = [job.id for job in jobs if job.id not in old_jobs]
            waiting = [job.id for job in jobs if _waited(old_jobs.get(job.id), job)]
            if added and waiting:
                return "a unique name is taken once", f"{added} beside {waiting} of {name}"
        return None


def check_unique(chain: CommitChain, history: CallLog) -> None:
    """Raise ``InvariantError`` at the first push that was answered wrongly."""
    for call in history.calls:
        if call.verb == "push_unique" and call.succeeded:
            _check(chain, call)


def _check(chain: CommitChain, call: RecordedCall) -> None:
    last, records = call.ended_version, chain.records.get(call.answer)
    if not call.answer.duplicate:
        # Another push of the same commit may have replaced its payload.
        if not records or records[0][1].unique != call.detail["unique"]:
            chain.violate("acknowledged means durable", str(call))
        if records[0][0] > last:
            chain.violate("no answer before its commit", str(call), last)
        return
    scope = ("queued",) if call.detail["scope"] == "queued" else _OPEN
    # A retry is answered with what an earlier try has found.
    first = 0 if call.detail["request"] else call.began_version
    fields = {"unique": call.detail["unique"]}
    held = (chain.holds(call.answer, first, last, status=each, **fields) for each in scope)
    is_passing = any(first < version <= last for version, _ in records or ())
    if not any(held) and not is_passing:
        chain.violate("a duplicate is one of a job in scope", str(call), last)


def _waited(old: JobRecord | None, job: JobRecord) -> bool:
    """Whether a job waited when a version was made, before and after everything in it."""
    if old is None or old.status != "queued" or job.status != "queued":
        return False
    return (old.attempt, old.failures, old.lost_leases) == (
        job.attempt,
        job.failures,
        job.lost_leases,
    )

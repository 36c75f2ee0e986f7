"""Whether limits held at every commit, and whether groups had their turns.

No more jobs of a kind or a group are running than its limit allows, unless they were running when
the limit was set. Every start takes a token: it moves the time at which the bucket is full by its
share of the period, and that time is never further ahead than a period. So in any period at most
twice the rate starts, whichever processes start them; a bucket that is forgotten was full.

Between two turns of a group, every other group has one that had a job waiting all the time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from bucketq.model.limits import LimitRecord
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from simulator.call_log import CallLog
from simulator.invariants.queue_invariants import CommitChain

_ROUNDING = timedelta(microseconds=1)
_Violation = tuple[str, str] | None


class LimitTracker:
    """Follows limits, running jobs and token buckets through the chain of commits."""

    def __init__(self) -> None:
        """Begin before the first commit."""
        self._latest: datetime | None = None
        """The latest time that any clock has shown."""

    def follow(self, before: State | None, state: State) -> _Violation:
        """Check one version; return the broken promise and how it was broken, or None."""
        if before is None or not before.limits:
            return None
        self._note_time(state)
        for limit in state.limits:
            known = before.limits.get(limit.id)
            if known is None:
                continue
            starts = _starts(before, state, limit)
            found = _check_running(before, state, known, limit)
            if found is None and limit.rate is not None and known == limit:
                found = self._check_bucket(before, state, limit, starts)
            if found is not None:
                return found
        return None

    def _note_time(self, state: State) -> None:
        times = [job.claimed_at for job in state.jobs if job.claimed_at is not None]
        times += [job.pushed_at for job in state.jobs]
        times += [] if state.time is None else [state.time.at]
        if state.time is not None and state.time.ahead_until is not None:
            times.append(state.time.ahead_until)
        times += [] if self._latest is None else [self._latest]
        self._latest = max(times, default=None)

    def _check_bucket(
        self, before: State, state: State, limit: LimitRecord, starts: list[datetime | None]
    ) -> _Violation:
        old, new = before.buckets.get(limit.id), state.buckets.get(limit.id)
        if new is None:
            if starts:
                return "a start takes a token", f"{len(starts)} of {limit.id} took none"
            is_early = old is not None and self._latest is not None and old.full_at > self._latest
            return ("a bucket that is forgotten was full", str(old)) if is_early else None
        share = limit.period / (limit.rate or 1) - _ROUNDING
        is_kept = old is not None and old.full_at <= new.full_at  # Otherwise it was mended.
        if is_kept and old is not None and new.full_at < old.full_at + len(starts) * share:
            what = f"{len(starts)} of {limit.id} moved {old.full_at} to {new.full_at}"
            return "a start takes a token", what
        known = [at for at in starts if at is not None]
        if known and len(known) == len(starts) and new.full_at > max(known) + limit.period:
            return "no more start than there are tokens", f"{limit.id}: {known}, {new.full_at}"
        return None


def check_turns(chain: CommitChain, history: CallLog) -> None:
    """Raise ``InvariantError`` at the first group that was left out."""
    turns: dict[tuple[Any, int], list[tuple[int, JobRecord]]] = {}
    starts = _versions_of_starts(chain)
    seen = set[str]()
    for call in history.calls:
        if call.verb != "claim" or not call.succeeded:
            continue
        kinds = call.detail["kinds"]
        for job in call.answer:
            record = job.record
            if record.lease in starts and record.lease not in seen:
                seen.add(record.lease)
                line = turns.setdefault((kinds, record.priority), [])
                line.append((starts[record.lease], record))
    for (kinds, priority), served in turns.items():
        last: dict[str, int] = {}
        for version, job in sorted(served, key=lambda each: each[0]):
            if job.group in last:
                _check_others(chain, kinds, priority, job, (last[job.group], version))
            last[job.group] = version


def _check_others(
    chain: CommitChain, kinds: Any, priority: int, served: JobRecord, versions: tuple[int, int]
) -> None:
    first, last = versions
    if any(first <= version <= last for version in chain.paused):
        return
    wanted = (kinds,) if isinstance(kinds, str) else kinds
    waiting, started = dict[str, str](), set[str]()
    for records in chain.records.values():
        job = records[0][1]
        if (wanted is not None and job.kind not in wanted) or job.group == served.group:
            continue
        for place, (version, record) in enumerate(records):
            following = records[place + 1][0] if place + 1 < len(records) else None
            is_free = record.priority == priority and not _is_limited(chain, record)
            stayed = version < first and (following is None or following > last)
            if record.status == "queued" and record.run_at is None and is_free and stayed:
                waiting[record.group] = record.id
            before = records[place - 1][1].attempt if place else 0
            if record.attempt > before and first <= version <= last:
                started.add(record.group)
    for group, job_id in waiting.items():
        if group not in started:
            what = f"{served.group!r} in {first} and {last}, while {job_id} of {group!r} waited"
            chain.violate("groups take turns", what, last)


def _is_limited(chain: CommitChain, job: JobRecord) -> bool:
    return bool({f"kind={job.kind}", f"group={job.group}"} & chain.limited)


def _versions_of_starts(chain: CommitChain) -> dict[str, int]:
    found: dict[str, int] = {}
    for records in chain.records.values():
        for version, record in records:
            if record.lease is not None:
                found.setdefault(record.lease, version)
    return found


def _check_running(
    before: State, state: State, known: LimitRecord, limit: LimitRecord
) -> _Violation:
    if limit.running is None or known.running is None:
        return None
    count, earlier = _running(state, limit), _running(before, limit)
    # A version may start jobs, and then lower the limit.
    if count > max(limit.running, known.running, earlier):
        return "no more jobs run than a limit allows", f"{count} of {limit.id}, {limit.running}"
    return None


def _running(state: State, limit: LimitRecord) -> int:
    return sum(_holds(limit, state.jobs.by_id[job_id]) for job_id in state.running)


def _holds(limit: LimitRecord, job: JobRecord) -> bool:
    return limit.id in (f"kind={job.kind}", f"group={job.group}")


def _starts(before: State, state: State, limit: LimitRecord) -> list[datetime | None]:
    """When the jobs of a limit that a version has started were claimed, as far as it shows."""
    found = list[datetime | None]()
    for job in state.jobs:
        old = before.jobs.get(job.id)
        attempt = 0 if old is None or old.seq != job.seq else old.attempt
        if _holds(limit, job) and job.attempt > attempt:
            found += [None] * (job.attempt - attempt - 1) + [job.claimed_at]
    return found

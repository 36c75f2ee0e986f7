"""Safety: did the queue keep its promises? Checked against the chain of commits.

The chain of committed objects is the linearization, so no search is needed: one pass over the chain
and one over the recorded calls check a whole simulation (``judge``).

The chain: versions rise by one, each built on its predecessor; a job never vanishes without having
been finished; attempts rise one at a time, each with one owner and one lease; done is final; one
idempotency key stands for one job; jobs are handed out in order.

``batch_invariants`` checks consumers and writers. ``broker_invariants`` checks brokers: the epoch
never falls and rises with the broker, and only the recorded broker writes as one.

Answers: every answer was true in the chain when it was given; nothing took effect twice; nothing
that was rejected took effect; no read was older than its request.

A broker may answer from memory that a job is held, or that there is none to claim. Such an answer
may be as old as its proof of leadership (``PROOF_S``) and no older: it must have been true at a
version that was the newest one at most that long before the call began, or later.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NoReturn

import msgspec

from bucketq.broker.leader import PROOF_S
from bucketq.errors import RejectedError, UnavailableError
from bucketq.model.records import JobRecord, Status
from bucketq.model.state import State
from simulator.call_log import SCHEDULED, CallLog, RecordedCall
from simulator.invariants.batch_invariants import ConsumerTracker
from simulator.invariants.broker_invariants import BrokerTracker
from simulator.invariants.payload_invariants import payload_in


class InvariantError(AssertionError):
    """A promise was broken: which one, how, and the calls and commits around it."""

    def __init__(self, invariant: str, detail: str, trace: list[str]) -> None:
        """Make the error, with a trace of calls and commits."""
        super().__init__("\n".join([f"{invariant}: {detail}", *trace]))
        self.invariant = invariant
        self.detail = detail


@dataclass
class CommitChain:
    """Everything that one pass over the chain of commits collects."""

    history: CallLog
    records: dict[str, list[tuple[int, JobRecord]]] = field(default_factory=dict)
    """The records of each job, each with the version that it appeared in."""
    by_token: dict[str, list[str]] = field(default_factory=dict)
    """The jobs with each payload."""
    leases: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The job and attempt of each lease."""
    archived: dict[str, list[tuple[float, JobRecord]]] = field(default_factory=dict)
    """The copies of each job in the archive, each with the time at which it landed."""
    gone: set[str] = field(default_factory=set)
    """The jobs that have left the queue."""
    paused: list[int] = field(default_factory=list)
    """The versions at which anything was paused."""
    limited: set[str] = field(default_factory=set)
    """What has had a limit."""
    quiet: list[int] = field(default_factory=list)
    """The versions that changed nothing but how long workers have been silent."""
    handed_to: dict[str, list[int]] = field(default_factory=dict)
    """The versions in which jobs were handed to each worker."""
    brokers: BrokerTracker = field(default_factory=BrokerTracker)
    consumers: ConsumerTracker = field(default_factory=ConsumerTracker)
    counts: list[dict[tuple[str, Status], int]] = field(default_factory=list)
    """How many jobs of each kind and status each version has."""
    segments: dict[str, int] = field(default_factory=dict)
    """How many segments were put, introduced, deleted and so on."""
    past: dict[str, int] = field(default_factory=dict)
    """How many objects of the history were put, deleted and so on."""
    final: State | None = None

    def holds(self, job_id: str, first: int, last: int, **fields: Any) -> bool:
        """Whether a job had these fields at some version between two."""
        records = self.records.get(job_id, [])
        for index, (version, record) in enumerate(records):
            until = records[index + 1][0] - 1 if index + 1 < len(records) else last
            if (
                version <= last
                and until >= first
                and all(getattr(record, name) == value for name, value in fields.items())
            ):
                return True
        return False

    def known_since(self, call: RecordedCall) -> int:
        """Return the oldest version that a call may be answered from."""
        if call.actor.rpartition("/")[0] not in self.history.clients:
            return call.began_version
        commits = self.history.store.history(self.history.key)
        return bisect_right(commits, call.began_s - PROOF_S, key=lambda commit: commit.time_s)

    def violate(self, invariant: str, detail: str, version: int | None = None) -> NoReturn:
        """Raise ``InvariantError``, with the calls and commits around a version."""
        raise InvariantError(invariant, detail, self._trace(version))

    def _trace(self, version: int | None) -> list[str]:
        commits = self.history.store.history(self.history.key)
        at = len(commits) if version is None else version
        near = range(max(1, at - 6), min(len(commits), at + 3) + 1)
        lines = [
            f"{commits[v - 1].time_s:9.3f} s  committed version {v} by {commits[v - 1].writer}"
            for v in near
        ]
        first, last = (near[0], near[-1]) if near else (0, 0)
        calls = [
            call
            for call in self.history.calls
            if call.began_version <= last and (call.ended_version >= first or not call.ended_s)
        ]
        return sorted([*lines, *map(str, calls[-25:])])


def check_version(
    chain: CommitChain, version: int, before: State | None, state: State, *, has_moved: bool
) -> None:
    """Check one version against the one before it; ``has_moved``: it moved rows."""
    chain.counts.append(dict(state.counts))
    _check_link(chain, version, before, state)
    is_quiet = _check_jobs(chain, version, before, state)
    if before is not None:
        _check_order(chain, version, before, state)
        if is_quiet and _head(before) == _head(state) and not has_moved:
            chain.quiet.append(version)
    if state.paused or state.paused_kinds:
        chain.paused.append(version)
    chain.limited.update(limit.id for limit in state.limits)
    writer = chain.history.store.history(chain.history.key)[version - 1].writer
    reason = chain.brokers.follow(chain.history, version, writer, before, state)
    reason = reason or chain.consumers.follow(version, before, state)
    if reason is not None:
        chain.violate(*reason, version)


def check_answers(chain: CommitChain) -> None:
    """Check all calls, and the archive, against the whole chain."""
    for call in chain.history.calls:
        _check_call(chain, call)
    _check_batches(chain)
    _check_claims(chain)
    _check_reads(chain)
    _check_archive(chain)


def _check_link(chain: CommitChain, version: int, before: State | None, state: State) -> None:
    if state.version != version:
        chain.violate("versions rise by one", f"{state.version} follows {version - 1}", version)
    if before is None:
        return
    if state.incarnation != before.incarnation:
        chain.violate("one incarnation", "the queue was created twice", version)
    mine, theirs = list(state.commits)[:-1], list(before.commits)
    if mine != theirs[-len(mine) :]:
        chain.violate("built on its predecessor", f"version {version} is not", version)


def _check_jobs(chain: CommitChain, version: int, before: State | None, state: State) -> bool:
    """Check how each job changed; return whether the commit was needless."""
    old_jobs = before.jobs.by_id if before else {}
    is_quiet = len(state.jobs.by_id) == len(old_jobs)
    for job in old_jobs.values():
        if job.id not in state.jobs.by_id:
            _check_gone(chain, version, job)
    for job in state.jobs:
        if job.id in chain.gone:
            chain.violate("a job that has left stays away", f"{job.id} came back", version)
        old = old_jobs.get(job.id)
        if job == old:
            continue
        chain.records.setdefault(job.id, []).append((version, job))
        if old is None:
            _check_new(chain, version, job)
        else:
            _check_step(chain, version, old, job)
        is_quiet = is_quiet and old is not None and _quiet(job) == _quiet(old)
        if job.progress is not None and job.progress.note != job.lease:
            chain.violate("progress ends with its attempt", f"{job}", version)
        if job.lease is not None and job.status == "running":
            _check_lease(chain, version, job, job.lease)
    return is_quiet


def _check_new(chain: CommitChain, version: int, job: JobRecord) -> None:
    token = msgspec.json.decode(payload_in(chain.history.store, job), type=str)
    (bearers := chain.by_token.setdefault(token, [])).append(job.id)
    # The jobs of a schedule have the same payload, and are told apart by their due times.
    if len(bearers) > 1 and not token.startswith(SCHEDULED):
        chain.violate("nothing takes effect twice", f"{token} is {bearers}", version)


def _check_lease(chain: CommitChain, version: int, job: JobRecord, lease: str) -> None:
    if lease not in chain.leases:
        chain.handed_to.setdefault(job.worker or "", []).append(version)
    owner = chain.leases.setdefault(lease, (job.id, job.attempt))
    if owner != (job.id, job.attempt):
        chain.violate("one lease, one attempt", f"{lease}: {owner}", version)


def _quiet(job: JobRecord) -> JobRecord:
    """Return a job without the fields that a heartbeat changes."""
    return msgspec.structs.replace(job, heartbeat_at=None, silent_s=0.0, progress=None)


def _head(state: State) -> tuple[Any, ...]:
    tables = (state.consumers, state.writers, state.workers, state.batches, state.results)
    bulk = tuple(tuple(table) for table in tables)
    return (state.broker, state.settings, state.paused, state.paused_kinds, bulk)


def _check_gone(chain: CommitChain, version: int, job: JobRecord) -> None:
    """A job leaves only when it is done and the archive has it."""
    commit = chain.history.store.history(chain.history.key)[version - 1]
    copies = [copy for at, copy in chain.archived.get(job.id, []) if at <= commit.time_s]
    if job.status != "done" or job not in copies:
        chain.violate("a job is always somewhere", f"{job.id} vanished", version)
    chain.gone.add(job.id)


def _check_archive(chain: CommitChain) -> None:
    """The archive holds committed completions, and nothing else."""
    for job_id, copies in chain.archived.items():
        records = chain.records.get(job_id)
        for at, copy in copies:
            if records is None or copy != records[-1][1] or copy.status != "done":
                chain.violate("the archive holds what was committed", f"{copy} at {at:.3f} s")


def _check_step(chain: CommitChain, version: int, old: JobRecord, job: JobRecord) -> None:
    if old.status == "done":
        chain.violate("done is final", f"{job.id} changed after it was done", version)
    handed_out = job.status == "running" and job.lease != old.lease
    if job.attempt < old.attempt or (handed_out and job.attempt == old.attempt):
        chain.violate("attempts rise", f"{job.id}: {old.attempt} to {job.attempt}", version)
    same_attempt = job.attempt == old.attempt and old.status == job.status == "running"
    # A push with a unique name may replace the payload of a job, but never while that runs.
    has_payload = job.payload == old.payload or (job.unique is not None and not same_attempt)
    # So may an operator replace its priority.
    has_priority = job.priority == old.priority or not same_attempt
    if not has_payload or not has_priority or _unchanging(job) != _unchanging(old):
        chain.violate("a job stays what it is", f"{job.id} was changed", version)
    if same_attempt and (job.lease, job.worker) != (old.lease, old.worker):
        chain.violate("one owner for an attempt", f"{job.id} {job.attempt}", version)


def _unchanging(job: JobRecord) -> tuple[Any, ...]:
    return (job.seq, job.pushed_at, job.key, job.unique, job.group)


def _check_order(chain: CommitChain, version: int, before: State, state: State) -> None:
    """No job that was handed out came after one of its group that was due and kept waiting."""
    if before.paused or state.paused or before.paused_kinds or state.paused_kinds:
        return
    claimed: dict[tuple[str, str], JobRecord] = {}
    # Jobs that a batch takes back were in order when it claimed them first.
    taken_back = {job_id for consumer in before.consumers for job_id in consumer.jobs}
    for job_id in state.running:
        if job_id in taken_back:
            continue
        job, old = state.jobs.by_id[job_id], before.jobs.get(job_id)
        if old is not None and old.status == "queued" and job.attempt == old.attempt + 1:
            lane = (job.kind, job.group)
            last = claimed.get(lane)
            claimed[lane] = job if last is None or job.order > last.order else last
    for job in state.jobs:
        last = claimed.get((job.kind, job.group))
        passed_over = (
            last is not None
            and job.status == "queued"
            and job.run_at is None
            and not job.after
            and before.jobs.get(job.id) == job
            and job.order < last.order
        )
        if passed_over and last is not None:
            chain.violate("first in, first out", f"{last.id} before {job.id}", version)


def _check_call(chain: CommitChain, call: RecordedCall) -> None:
    if call.verb in ("push", "push_many"):
        _check_push(chain, call)
    elif call.verb == "complete":
        _check_complete(chain, call)
    elif call.verb == "complete_many":
        _check_complete_many(chain, call)
    elif call.verb in ("release", "release_many") and call.succeeded:
        _check_release(chain, call)
    elif call.verb == "fail":
        _check_fail(chain, call)
    elif call.verb == "heartbeat" and call.succeeded:
        first, last = chain.known_since(call), call.ended_version
        for lease, pulse in zip(call.detail["leases"], call.answer, strict=True):
            is_held = chain.holds(pulse.job, first, last, status="running", lease=lease)
            if pulse.held and not is_held:
                chain.violate("held means held", str(call), last)


def _check_release(chain: CommitChain, call: RecordedCall) -> None:
    detail, version = call.detail, call.ended_version
    for job_id, lease in detail.get("jobs") or [(detail["job"], detail["lease"])]:
        if chain.holds(job_id, version, version, status="running", lease=lease):
            chain.violate("released means released", str(call), version)


def _check_push(chain: CommitChain, call: RecordedCall) -> None:
    tokens = call.detail.get("tokens") or [call.detail["token"]]
    if call.succeeded:
        answer = call.answer if isinstance(call.answer, list) else [call.answer]
        for token, job_id in zip_longest(tokens, answer):
            bearers = chain.by_token.get(token, [])
            if bearers != [job_id]:
                chain.violate("acknowledged means durable", f"{call}: {bearers}")
            if chain.records[job_id][0][0] > call.ended_version:
                chain.violate("no answer before its commit", str(call), call.ended_version)
    elif isinstance(call.error, RejectedError) and call.detail.get("key") is None:
        for token in tokens:
            if chain.by_token.get(token) and not _succeeded_elsewhere(chain, call, token):
                chain.violate("nothing refused takes effect", str(call))
    if call.verb == "push_many":
        present = {bool(chain.by_token.get(token)) for token in tokens}
        if len(present) > 1:
            chain.violate("all or none", str(call))


def _succeeded_elsewhere(chain: CommitChain, refused: RecordedCall, token: str) -> bool:
    """Whether another attempt at the same push may have inserted the job."""
    return any(
        call is not refused and not isinstance(call.error, RejectedError)
        for call in chain.history.calls
        if call.verb in ("push", "push_many")
        and token in (call.detail.get("tokens") or [call.detail["token"]])
    )


def _check_complete(chain: CommitChain, call: RecordedCall) -> None:
    fields = {"status": "done", "outcome": "completed", "lease": call.detail["lease"]}
    done = chain.holds(call.detail["job"], 0, len(chain.history.calls) + 10**9, **fields)
    if call.succeeded and not chain.holds(call.detail["job"], 0, call.ended_version, **fields):
        chain.violate("completed means completed", str(call), call.ended_version)
    if isinstance(call.error, RejectedError) and done and not _was_in_doubt(chain, call):
        chain.violate("nothing refused takes effect", str(call), call.ended_version)


def _was_in_doubt(chain: CommitChain, call: RecordedCall) -> bool:
    """Whether the call repeats, as a new request, one that may have taken effect already."""
    job_id, lease = call.detail["job"], call.detail["lease"]
    return call.detail["request"] is None and any(
        isinstance(before.error, UnavailableError)
        for before in chain.history.calls[: call.number]
        if before.actor == call.actor
        and (
            before.detail.get("lease") == lease or (job_id, lease) in before.detail.get("jobs", ())
        )
    )


def _check_complete_many(chain: CommitChain, call: RecordedCall) -> None:
    """The answer for each job is true, also for those whose lease was lost."""
    if not call.succeeded:
        return
    for (job_id, lease), is_acknowledged in zip(call.detail["jobs"], call.answer, strict=True):
        fields = {"status": "done", "outcome": "completed", "lease": lease}
        if is_acknowledged and not chain.holds(job_id, 0, call.ended_version, **fields):
            chain.violate("completed means completed", str(call), call.ended_version)
        # A request that was too old is sent with a new id, and the job may be gone by then.
        is_done = chain.holds(job_id, 0, len(chain.history.calls) + 10**9, **fields)
        if not is_acknowledged and is_done and job_id not in chain.gone:
            chain.violate("nothing refused takes effect", str(call), call.ended_version)


def _check_fail(chain: CommitChain, call: RecordedCall) -> None:
    lease = call.detail["lease"]
    if lease not in chain.leases:
        chain.violate("no answer before its commit", f"no version has the lease of {call}")
    job_id, attempt = chain.leases[lease]
    failed_in = [
        version
        for version, record in chain.records[job_id]
        if any(f.attempt == attempt and f.cause == "failed" for f in record.errors)
    ]
    if call.succeeded and not (failed_in and failed_in[0] <= call.ended_version):
        chain.violate("failed means failed", str(call), call.ended_version)
    if isinstance(call.error, RejectedError) and failed_in and not _was_in_doubt(chain, call):
        chain.violate("nothing refused takes effect", str(call), call.ended_version)


def _check_batches(chain: CommitChain) -> None:
    for violation, version in chain.consumers.check_calls(chain.history, chain.known_since):
        chain.violate(*violation, version)


def _check_claims(chain: CommitChain) -> None:
    """Each attempt was handed to one call only, or to its retries, and after its commit."""
    owners: dict[str, RecordedCall] = {}
    for call in chain.history.calls:
        if call.verb != "claim" or not call.succeeded:
            continue
        for job in call.answer:
            lease, worker = job.lease.lease, job.worker
            if not chain.holds(job.id, 0, call.ended_version, lease=lease, worker=call.actor):
                chain.violate("no answer before its commit", str(call), call.ended_version)
            if owners.setdefault(lease, call) is not call or worker != call.actor:
                chain.violate("one owner for an attempt", str(call), call.ended_version)
        if not call.answer:
            _check_empty(chain, call)


def _check_empty(chain: CommitChain, call: RecordedCall) -> None:
    """A claim that found nothing did not miss a job that was claimable all the while."""
    first, last, asked = chain.known_since(call), call.ended_version, call.detail["kinds"]
    kinds = (asked,) if isinstance(asked, str) else asked
    place = bisect_right(chain.paused, first - 1)
    if place < len(chain.paused) and chain.paused[place] <= last:
        return
    handed = chain.handed_to.get(call.actor, [])
    if call.detail["request"] or (handed and handed[-1] > call.began_version):
        return  # A retry may have been answered with jobs whose leases expired meanwhile.
    for records in chain.records.values():
        at = bisect_right(records, first, key=lambda entry: entry[0])
        if at == 0:
            continue
        job = records[at - 1][1]
        stayed = at == len(records) or records[at][0] > last
        is_wanted = kinds is None or job.kind in kinds
        is_limited = {f"kind={job.kind}", f"group={job.group}"} & chain.limited
        is_ready = job.status == "queued" and not job.run_at and not job.after
        if stayed and is_ready and is_wanted and not is_limited:
            chain.violate("a claim finds what is there", f"{job.id}: {call}", last)


def _check_reads(chain: CommitChain) -> None:
    for call in chain.history.calls:
        if call.verb != "stats" or not call.succeeded:
            continue
        version = call.answer.version
        if not call.began_version <= version <= call.ended_version:
            chain.violate("no read is older than its question", str(call), call.ended_version)
        kinds = call.answer.counts.items()
        counted = {(kind, status): n for kind, by in kinds for status, n in by.items()}
        if counted != chain.counts[version - 1]:
            chain.violate("counts are exact", f"{call}: {chain.counts[version - 1]}", version)

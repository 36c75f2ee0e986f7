"""Checks of worker engines, against the runs of handlers, the calls of engines and the commits.

**Safety.** A handler runs once per attempt, under a lease that was handed out, while attempts are
left, and in a slot of its engine. It is asked to stop as soon as its lease is known to be lost, and
before it may be. Only what a handler returned is completed. An engine heartbeats every job that
it holds until the end is acknowledged. No job ends in a way that its kind cannot end.

**Efficiency**, if the schedule leaves workers alone: jobs whose handler has begun are released only
by a drain, completed jobs do not run again, attempts at a job do not overlap, a drained engine
holds nothing, and no engine has a free slot while jobs wait in the queue or in another engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from bucketq.errors import LeaseLostError
from bucketq.model.records import JobRecord
from simulator.actors.worker_actors import LIMITS, NEVER_COMPLETED, NEVER_FAILING
from simulator.call_log import RecordedCall
from simulator.fault_schedule import FAULTS_END_S, FaultSchedule
from simulator.invariants.queue_invariants import CommitChain
from simulator.simulated_cluster import SimulatedCluster
from simulator.worker_log import EngineRun, HandlerRun, WorkerLog

_IMMEDIATELY_S = 0.001  # Virtual time stands still while code runs; this is for rounding.
_GIVEN_BACK_S = 2.0
"""How long it may take to release the jobs of a claim that a drain has withdrawn.

They are released in one commit, which may lose races against six direct writers. One commit for
each of ten jobs took 2.8 s.
"""
_SETTLING = ("complete_many", "fail", "release_many")


@dataclass
class HeldJob:
    """One job that an engine held, from its claim to its end."""

    engine: str
    job: str
    lease: str
    claimed_s: float
    proofs: list[tuple[float, float]] = field(default_factory=list)
    """When each confirmed heartbeat was sent, and when it was answered."""
    lost_s: float | None = None
    """When the engine learned that the lease is lost."""
    settling: list[RecordedCall] = field(default_factory=list)

    @property
    def settled_s(self) -> float | None:
        """When the queue acknowledged its end, or rejected it because the lease was lost."""
        for call in self.settling:
            if call.ended_s is not None and (
                call.error is None or isinstance(call.error, LeaseLostError)
            ):
                return call.ended_s
        return None


class WorkerChecks:
    """The runs and calls of all engines, by lease."""

    def __init__(self, cluster: SimulatedCluster, chain: CommitChain) -> None:
        """Group the calls of engines by lease."""
        self.cluster = cluster
        self.chain = chain
        self.worker_log: WorkerLog = cluster.worker_log
        self.runs = {run.lease: run for run in self.worker_log.runs}
        self.beats: dict[str, list[RecordedCall]] = {}
        self.held_jobs: dict[str, HeldJob] = {}
        self.lease_s = float(str(cluster.settings["lease_s"]))
        for call in cluster.history.calls:
            if call.actor in self.worker_log.engine_runs:
                self._sort(call)

    def _sort(self, call: RecordedCall) -> None:
        if call.verb == "claim" and call.succeeded:
            for job in call.answer:
                lease = job.lease.lease
                self.held_jobs[lease] = HeldJob(call.actor, job.id, lease, call.ended_s or 0.0)
        elif call.verb == "heartbeat":
            self.beats.setdefault(call.actor, []).append(call)
            if call.succeeded:
                for lease, pulse in zip(call.detail["leases"], call.answer, strict=True):
                    held_job = self.held_jobs[lease]
                    if pulse.held:
                        held_job.proofs.append((call.began_s, call.ended_s or 0.0))
                    elif held_job.lost_s is None:
                        held_job.lost_s = call.ended_s
        elif call.verb in _SETTLING:
            for lease in _leases(call):
                self.held_jobs[lease].settling.append(call)

    def engine_run_of(self, run: HandlerRun) -> EngineRun:
        """Return the engine run that a handler run belongs to."""
        return self.worker_log.engine_runs[run.engine]

    def is_excused(self, engine: str) -> bool:
        """Whether the process of an engine was frozen for a while."""
        return self.worker_log.engine_runs[engine].process in self.cluster.history.excused

    def end_of(self, run: HandlerRun) -> float:
        """Return when a handler ended, was asked to stop, or lost its process."""
        history = self.cluster.history
        died_s = history.deaths.get(self.engine_run_of(run).process, self.cluster.loop.time())
        ends = [end for end in (run.asked_to_stop_s, run.ended_s, died_s) if end is not None]
        return min(ends)


def check_worker_safety(cluster: SimulatedCluster, chain: CommitChain) -> None:
    """Check the safety of engines."""
    checks = WorkerChecks(cluster, chain)
    _check_runs(checks)
    for held_job in checks.held_jobs.values():
        _check_settling(checks, held_job)
        _check_stopping(checks, held_job)
    _check_beats(checks)
    _check_overlaps(checks)
    for job_id, records in chain.records.items():
        _check_outcome(chain, job_id, records[-1][1])


def check_worker_efficiency(
    cluster: SimulatedCluster, chain: CommitChain, faults: FaultSchedule
) -> None:
    """Check the efficiency of engines that the fault schedule leaves alone."""
    checks = WorkerChecks(cluster, chain)
    if faults in ("nothing", "restarts"):
        _check_drains(checks)
    if faults in ("nothing", "restarts", "slow-storage"):
        _check_releases(checks)
        _check_repeats(checks)
    if faults == "nothing":
        _check_backlogs(checks)
        _check_idleness(checks)


def _leases(call: RecordedCall) -> list[str]:
    if call.verb in ("complete_many", "release_many"):
        return [lease for _, lease in call.detail["jobs"]]
    return [call.detail["lease"]]


def _check_runs(checks: WorkerChecks) -> None:
    chain = checks.chain
    seen: set[tuple[str, int]] = set()
    for run in checks.worker_log.runs:
        if chain.leases.get(run.lease) != (run.job, run.attempt) or not chain.holds(
            run.job, 0, run.began_version, lease=run.lease, worker=run.engine
        ):
            chain.violate("a handler runs under a lease", str(run), run.began_version)
        if (run.job, run.attempt) in seen:
            chain.violate("an attempt is run once", str(run), run.began_version)
        seen.add((run.job, run.attempt))
        settings = checks.cluster.settings
        limit = LIMITS.get(run.kind, int(str(settings["max_attempts"])))
        if run.used >= limit:
            chain.violate("attempts are limited", f"{run}: {run.used}", run.began_version)
        if run.beside > checks.engine_run_of(run).concurrency:
            chain.violate("slots are never exceeded", f"{run}: {run.beside}", run.began_version)
        if run.kind == "unfit":
            chain.violate("what does not fit is not run", str(run), run.began_version)


def _check_settling(checks: WorkerChecks, held_job: HeldJob) -> None:
    """What an engine reports for a job is what its handler did."""
    run = checks.runs.get(held_job.lease)
    for call in held_job.settling:
        has_ended = run is not None and run.ended_s is not None and run.ended_s <= call.began_s
        if call.verb == "complete_many":
            is_true = run is not None and has_ended and run.end == "returned"
        elif call.verb == "fail":
            # Without a run the payload did not fit, or no attempt was left.
            is_true = run is None or run.is_stopped or (has_ended and run.end == "raised")
        else:
            is_true = run is None or run.is_stopped
        if not is_true:
            detail = f"{run}: {call}"
            checks.chain.violate("an engine reports what happened", detail, call.began_version)
        is_lost = held_job.lost_s is not None and held_job.lost_s + _IMMEDIATELY_S < call.began_s
        if is_lost and run is not None and (run.ended_s or 1e9) > (held_job.lost_s or 0.0):
            detail = f"lost at {held_job.lost_s:.3f} s: {call}"
            checks.chain.violate("what is lost is let go", detail, call.began_version)


def _check_stopping(checks: WorkerChecks, held_job: HeldJob) -> None:
    """A handler is asked to stop when its lease is lost, and before it may be another worker's."""
    run = checks.runs.get(held_job.lease)
    if run is None or checks.is_excused(run.engine):
        return
    chain, over_s = checks.chain, checks.end_of(run)
    if held_job.lost_s is not None and max(held_job.lost_s, run.began_s) + _IMMEDIATELY_S < over_s:
        detail = f"{run}, and lost at {held_job.lost_s:.3f} s"
        chain.violate("a handler without a lease is stopped", detail, run.began_version)
    for limit_s in _limits(held_job, checks.lease_s):
        if run.began_s <= limit_s < over_s:
            detail = f"{run}, and might be lost at {limit_s:.3f} s"
            chain.violate("a handler that may have no lease is stopped", detail, run.began_version)


def _limits(held_job: HeldJob, lease_s: float) -> Iterator[float]:
    """The times at which a lease may have expired, as far as its engine could know."""
    proved_s = held_job.claimed_s
    for sent_s, heard_s in held_job.proofs:
        if heard_s > proved_s + lease_s:
            yield proved_s + lease_s
        proved_s = max(proved_s, sent_s)
    yield proved_s + lease_s


def _check_beats(checks: WorkerChecks) -> None:
    """An engine heartbeats every job that it holds until the end is acknowledged."""
    held: dict[str, list[HeldJob]] = {}
    for held_job in checks.held_jobs.values():
        held.setdefault(held_job.engine, []).append(held_job)
    for engine, beats in checks.beats.items():
        engine_run = checks.worker_log.engine_runs[engine]
        for beat in beats:
            if engine_run.stopped_s is not None and beat.began_s >= engine_run.stopped_s:
                break  # While it drains, it may give up on some.
            leases = set(beat.detail["leases"])
            for held_job in held.get(engine, []):
                is_held = held_job.claimed_s + _IMMEDIATELY_S < beat.began_s
                ends = [end for end in (held_job.settled_s, held_job.lost_s) if end is not None]
                if (
                    is_held
                    and held_job.lease not in leases
                    and min(ends, default=1e9) > beat.began_s
                ):
                    detail = f"{held_job.job}, {held_job.lease}: {beat}"
                    invariant = "a job is kept until its end is acknowledged"
                    checks.chain.violate(invariant, detail, beat.began_version)


def _check_overlaps(checks: WorkerChecks) -> None:
    """Attempts at a job do not overlap, unless one was asked to stop or its process was frozen."""
    by_job: dict[str, list[HandlerRun]] = {}
    for run in checks.worker_log.runs:
        by_job.setdefault(run.job, []).append(run)
    for runs in by_job.values():
        for before, after in pairwise(sorted(runs, key=lambda run: run.attempt)):
            over_s = checks.end_of(before)
            # The answer to a claim may be so late that the lease has expired by then.
            was_held = checks.chain.holds(
                before.job,
                before.began_version,
                before.began_version,
                status="running",
                lease=before.lease,
            )
            is_excused = not was_held or checks.is_excused(before.engine)
            if over_s > after.began_s + _IMMEDIATELY_S and not is_excused:
                detail = f"{before}; {after}"
                checks.chain.violate("one attempt at a time", detail, after.began_version)


def _check_outcome(chain: CommitChain, job_id: str, last: JobRecord) -> None:
    is_completed = last.status == "done" and last.outcome == "completed"
    detail = f"{last.kind} job {job_id} is {last.status} with {last.failures} failures"
    if last.kind in NEVER_COMPLETED and is_completed:
        chain.violate("what is doomed is not done", detail)
    if last.kind in NEVER_FAILING and last.failures:
        chain.violate("what works does not fail", detail)
    if last.kind in ("hopeless", "unfit") and (last.failures > 1 or is_completed):
        chain.violate("what will never work is tried once", detail)


def _check_drains(checks: WorkerChecks) -> None:
    """A drained engine holds nothing: no job waits for its lease to expire."""
    chain = checks.chain
    commits = checks.cluster.store.history(checks.cluster.history.key)
    for engine_run in checks.worker_log.engine_runs.values():
        if engine_run.ended_s is None or engine_run.may_leave_jobs(is_well=True):
            continue
        by_s = engine_run.ended_s + _GIVEN_BACK_S
        version = sum(commit.time_s <= by_s for commit in commits)
        for job_id in chain.records:
            if chain.holds(job_id, version, version, status="running", worker=engine_run.engine):
                detail = f"{job_id} is held by {engine_run}"
                chain.violate("a drained engine holds nothing", detail, version)


def _check_releases(checks: WorkerChecks) -> None:
    """A job whose handler has begun is released only by a drain or a cancellation."""
    chain = checks.chain
    for held_job in checks.held_jobs.values():
        run = checks.runs.get(held_job.lease)
        stopped_s = checks.worker_log.engine_runs[held_job.engine].stopped_s
        for call in held_job.settling:
            is_draining = stopped_s is not None and stopped_s <= call.began_s
            if call.verb != "release_many" or run is None or is_draining:
                continue
            if not chain.holds(
                held_job.job, 0, call.began_version, lease=held_job.lease, cancel_requested=True
            ):
                chain.violate("no job is given back without a reason", f"{run}: {call}")


def _check_repeats(checks: WorkerChecks) -> None:
    """A job whose handler returned does not run again, unless it was asked to stop or died."""
    over: dict[str, HandlerRun] = {}
    for run in checks.worker_log.runs:
        if run.job in over:
            detail = f"{over[run.job]}; {run}"
            checks.chain.violate("what is done is not run again", detail, run.began_version)
        died_s = checks.cluster.history.deaths.get(checks.engine_run_of(run).process, 1e9)
        had_time = run.ended_s is not None and died_s > run.ended_s + checks.lease_s
        if run.end == "returned" and not run.is_stopped and had_time:
            over[run.job] = run


def _check_backlogs(checks: WorkerChecks) -> None:
    """A job does not wait long in an engine: it is started or released."""
    limit_s = checks.lease_s / 2
    for held_job in checks.held_jobs.values():
        run = checks.runs.get(held_job.lease)
        begun = [run.began_s] if run is not None else []
        given = [call.began_s for call in held_job.settling]
        ended = [lost for lost in (held_job.lost_s,) if lost is not None]
        until_s = min((*begun, *given, *ended), default=checks.cluster.loop.time())
        if until_s > held_job.claimed_s + limit_s and until_s < FAULTS_END_S:
            detail = f"{held_job.job} in {held_job.engine} since {held_job.claimed_s:.3f} s"
            checks.chain.violate("no engine hoards", f"{detail}, until {until_s:.3f} s")


def _check_idleness(checks: WorkerChecks) -> None:
    """No engine has a free slot for long while a job that it could run waits in the queue."""
    limit_s = checks.lease_s / 2
    free = {
        engine: list(_free(checks, engine_run))
        for engine, engine_run in checks.worker_log.engine_runs.items()
    }
    for job_id, kind, since_s, until_s in _waits(checks):
        for engine, windows in free.items():
            engine_run = checks.worker_log.engine_runs[engine]
            if kind not in engine_run.kinds or engine_run.is_burst:
                continue  # A burst claims again only when one of its jobs has ended.
            for first_s, last_s in windows:
                if min(last_s, until_s) - max(first_s, since_s) > limit_s:
                    detail = f"{kind} job {job_id} waited from {since_s:.3f} to {until_s:.3f} s"
                    detail += f" beside {engine}, free from {first_s:.3f} to {last_s:.3f} s"
                    checks.chain.violate("no engine is idle while jobs wait", detail)


def _free(checks: WorkerChecks, engine_run: EngineRun) -> Iterator[tuple[float, float]]:
    """The times during which an engine had a free slot, and began nothing.

    A job whose payload does not fit has no run: it begins and ends when it is claimed.
    """
    end_s = min(engine_run.stopped_s or FAULTS_END_S, FAULTS_END_S)
    events = [(end_s, 0)]
    for run in checks.worker_log.runs:
        if run.engine == engine_run.engine:
            events += [(run.began_s, 1), (run.ended_s or FAULTS_END_S, -1)]
    for held_job in checks.held_jobs.values():
        if held_job.engine == engine_run.engine and held_job.lease not in checks.runs:
            events.append((held_job.claimed_s, 0))
    busy, since_s = 0, engine_run.began_s
    for at_s, change in sorted(events):
        if busy < engine_run.concurrency and min(at_s, end_s) > since_s:
            yield since_s, min(at_s, end_s)
        busy, since_s = busy + change, at_s


def _waits(checks: WorkerChecks) -> Iterator[tuple[str, str, float, float]]:
    """Each job that waited for a worker: its id, its kind, and the time it waited."""
    chain, cluster = checks.chain, checks.cluster
    commits = cluster.store.history(cluster.history.key)
    for job_id, records in chain.records.items():
        ends = [*(version for version, _ in records[1:]), len(commits) + 1]
        for (version, record), next_version in zip(records, ends, strict=True):
            if record.status != "queued" or record.run_at is not None:
                continue
            if any(version <= paused < next_version for paused in chain.paused):
                continue
            is_last = next_version > len(commits)
            until_s = cluster.loop.time() if is_last else commits[next_version - 1].time_s
            yield job_id, record.kind, commits[version - 1].time_s, until_s

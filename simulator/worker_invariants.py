"""Did engines do their work well? Judged by their logbook, their calls and what was committed.

At any time: a handler runs under a lease that was handed out, once, while attempts are left and in
a slot of its engine; it is told to stop as soon as its lease is known to be lost, and before it may
be; what is completed was returned by a handler before; whatever an engine holds it beats for until
the end is acknowledged; and no kind of job ends as it must not.

In fair weather: no job whose handler has begun is given back but by a drain, none that was
completed runs again, no two attempts at a job overlap, an engine that was drained holds nothing,
and no engine has a free slot while jobs wait, in the queue or in another engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from bucketq.errors import LeaseLostError
from bucketq.model.job import JobRecord
from simulator.call_history import Call
from simulator.fault_schedule import STORM_S, Weather
from simulator.invariants import Chain
from simulator.simulated_cluster import World
from simulator.worker_actors import DOOMED, GENTLE, LIMITS
from simulator.worker_history import Logbook, Run, Shift

_AT_ONCE_S = 0.001
_GIVEN_BACK_S = 2.0
"""How long a claim that was withdrawn by a drain may take to be undone.

Its jobs are given back in one commit, which may lose races against six others that write directly.
One commit for each of ten jobs took 2.8 s.
"""
_SETTLING = ("complete", "complete_many", "fail", "release", "release_many")


@dataclass
class Tenure:
    """How an engine held one job, gathered from its calls."""

    engine: str
    job: str
    lease: str
    claimed_s: float
    proofs: list[tuple[float, float]] = field(default_factory=list)
    """When heartbeats were sent that were answered with yes, and when the answers came."""
    lost_s: float | None = None
    """When it was told that the lease is lost."""
    settling: list[Call] = field(default_factory=list)

    @property
    def settled_s(self) -> float | None:
        """When the queue acknowledged its end, or refused it for good."""
        for call in self.settling:
            if call.ended_s is not None and (
                call.error is None or isinstance(call.error, LeaseLostError)
            ):
                return call.ended_s
        return None


class Oversight:
    """All that is known of the engines of one world."""

    def __init__(self, world: World, chain: Chain) -> None:
        """Sort the calls of engines by the leases that they are about."""
        self.world = world
        self.chain = chain
        self.book: Logbook = world.book
        self.runs = {run.lease: run for run in self.book.runs}
        self.beats: dict[str, list[Call]] = {}
        self.tenures: dict[str, Tenure] = {}
        self.lease_s = float(str(world.settings["lease_s"]))
        for call in world.history.calls:
            if call.actor in self.book.shifts:
                self._sort(call)

    def _sort(self, call: Call) -> None:
        if call.verb == "claim" and call.succeeded:
            for job in call.answer:
                lease = job.lease.lease
                self.tenures[lease] = Tenure(call.actor, job.id, lease, call.ended_s or 0.0)
        elif call.verb == "heartbeat":
            self.beats.setdefault(call.actor, []).append(call)
            if call.succeeded:
                for lease, pulse in zip(call.detail["leases"], call.answer, strict=True):
                    tenure = self.tenures[lease]
                    if pulse.held:
                        tenure.proofs.append((call.began_s, call.ended_s or 0.0))
                    elif tenure.lost_s is None:
                        tenure.lost_s = call.ended_s
        elif call.verb in _SETTLING:
            for lease in _leases(call):
                self.tenures[lease].settling.append(call)

    def shift_of(self, run: Run) -> Shift:
        """The shift that a run belongs to."""
        return self.book.shifts[run.engine]

    def is_excused(self, engine: str) -> bool:
        """Whether the process of an engine stood still for a while."""
        return self.book.shifts[engine].process in self.world.history.excused

    def end_of(self, run: Run) -> float:
        """When a run was over, or nobody counted on it any more."""
        history = self.world.history
        died_s = history.deaths.get(self.shift_of(run).process, self.world.loop.time())
        ends = [end for end in (run.told_s, run.ended_s, died_s) if end is not None]
        return min(ends)


def check_crew(world: World, chain: Chain) -> None:
    """Check what must hold of engines at any time."""
    oversight = Oversight(world, chain)
    _check_runs(oversight)
    for tenure in oversight.tenures.values():
        _check_settling(oversight, tenure)
        _check_stopping(oversight, tenure)
    _check_beats(oversight)
    _check_overlaps(oversight)
    for job_id, records in chain.records.items():
        _check_fate(chain, job_id, records[-1][1])


def check_crew_fair(world: World, chain: Chain, weather: Weather) -> None:
    """Check what must hold of engines where nothing befalls them."""
    oversight = Oversight(world, chain)
    if weather in ("calm", "visits"):
        _check_drains(oversight)
    if weather in ("calm", "visits", "slow"):
        _check_releases(oversight)
        _check_repeats(oversight)
    if weather == "calm":
        _check_backlogs(oversight)
        _check_idleness(oversight)


def _leases(call: Call) -> list[str]:
    if call.verb in ("complete_many", "release_many"):
        return [lease for _, lease in call.detail["jobs"]]
    return [call.detail["lease"]]


def _check_runs(oversight: Oversight) -> None:
    chain = oversight.chain
    seen: set[tuple[str, int]] = set()
    for run in oversight.book.runs:
        if chain.leases.get(run.lease) != (run.job, run.attempt) or not chain.holds(
            run.job, 0, run.began_version, lease=run.lease, worker=run.engine
        ):
            chain.break_off("a handler runs under a lease", str(run), run.began_version)
        if (run.job, run.attempt) in seen:
            chain.break_off("an attempt is run once", str(run), run.began_version)
        seen.add((run.job, run.attempt))
        settings = oversight.world.settings
        limit = LIMITS.get(run.kind, int(str(settings["max_attempts"])))
        if run.used >= limit:
            chain.break_off("attempts are limited", f"{run}: {run.used}", run.began_version)
        if run.beside > oversight.shift_of(run).concurrency:
            chain.break_off("slots are never exceeded", f"{run}: {run.beside}", run.began_version)
        if run.kind == "unfit":
            chain.break_off("what does not fit is not run", str(run), run.began_version)


def _check_settling(oversight: Oversight, tenure: Tenure) -> None:
    """What an engine says of a job is what its handler did."""
    run = oversight.runs.get(tenure.lease)
    for call in tenure.settling:
        has_ended = run is not None and run.ended_s is not None and run.ended_s <= call.began_s
        if call.verb in ("complete", "complete_many"):
            is_true = run is not None and has_ended and run.end == "returned"
        elif call.verb == "fail":
            # Without a run it did not fit, or no attempt was left to run it.
            is_true = run is None or run.is_stopped or (has_ended and run.end == "raised")
        else:
            is_true = run is None or run.is_stopped
        if not is_true:
            story = f"{run}: {call}"
            oversight.chain.break_off("an engine tells what happened", story, call.began_version)
        is_lost = tenure.lost_s is not None and tenure.lost_s + _AT_ONCE_S < call.began_s
        if is_lost and run is not None and (run.ended_s or 1e9) > (tenure.lost_s or 0.0):
            story = f"told at {tenure.lost_s:.3f} s: {call}"
            oversight.chain.break_off("what is lost is let go", story, call.began_version)


def _check_stopping(oversight: Oversight, tenure: Tenure) -> None:
    """A handler is told to stop when its lease is lost, and before others may have it."""
    run = oversight.runs.get(tenure.lease)
    if run is None or oversight.is_excused(run.engine):
        return
    chain, over_s = oversight.chain, oversight.end_of(run)
    if tenure.lost_s is not None and max(tenure.lost_s, run.began_s) + _AT_ONCE_S < over_s:
        story = f"{run}, and lost at {tenure.lost_s:.3f} s"
        chain.break_off("a handler without a lease is stopped", story, run.began_version)
    for limit_s in _limits(tenure, oversight.lease_s):
        if run.began_s <= limit_s < over_s:
            story = f"{run}, and might be lost at {limit_s:.3f} s"
            chain.break_off("a handler that may have no lease is stopped", story, run.began_version)


def _limits(tenure: Tenure, lease_s: float) -> Iterator[float]:
    """The times at which a lease might have run out, as far as its engine could know."""
    proved_s = tenure.claimed_s
    for sent_s, heard_s in tenure.proofs:
        if heard_s > proved_s + lease_s:
            yield proved_s + lease_s
        proved_s = max(proved_s, sent_s)
    yield proved_s + lease_s


def _check_beats(oversight: Oversight) -> None:
    """An engine beats for all that it holds, until the end is acknowledged."""
    held: dict[str, list[Tenure]] = {}
    for tenure in oversight.tenures.values():
        held.setdefault(tenure.engine, []).append(tenure)
    for engine, beats in oversight.beats.items():
        shift = oversight.book.shifts[engine]
        for beat in beats:
            if shift.stopped_s is not None and beat.began_s >= shift.stopped_s:
                break  # It may have given up on some.
            leases = set(beat.detail["leases"])
            for tenure in held.get(engine, []):
                is_held = tenure.claimed_s + _AT_ONCE_S < beat.began_s
                ends = [end for end in (tenure.settled_s, tenure.lost_s) if end is not None]
                if is_held and tenure.lease not in leases and min(ends, default=1e9) > beat.began_s:
                    story = f"{tenure.job}, {tenure.lease}: {beat}"
                    invariant = "a job is kept until its end is acknowledged"
                    oversight.chain.break_off(invariant, story, beat.began_version)


def _check_overlaps(oversight: Oversight) -> None:
    """No two attempts at a job run at once, but where one was told to stop or stood still."""
    by_job: dict[str, list[Run]] = {}
    for run in oversight.book.runs:
        by_job.setdefault(run.job, []).append(run)
    for runs in by_job.values():
        for before, after in pairwise(sorted(runs, key=lambda run: run.attempt)):
            over_s = oversight.end_of(before)
            # The answer to a claim may be so late that the job is another's before it begins.
            was_held = oversight.chain.holds(
                before.job,
                before.began_version,
                before.began_version,
                status="running",
                lease=before.lease,
            )
            is_excused = not was_held or oversight.is_excused(before.engine)
            if over_s > after.began_s + _AT_ONCE_S and not is_excused:
                story = f"{before}; {after}"
                oversight.chain.break_off("one attempt at a time", story, after.began_version)


def _check_fate(chain: Chain, job_id: str, last: JobRecord) -> None:
    is_completed = last.status == "done" and last.outcome == "completed"
    story = f"{last.kind} job {job_id} is {last.status} with {last.failures} failures"
    if last.kind in DOOMED and is_completed:
        chain.break_off("what is doomed is not done", story)
    if last.kind in GENTLE and last.failures:
        chain.break_off("what works does not fail", story)
    if last.kind in ("hopeless", "unfit") and (last.failures > 1 or is_completed):
        chain.break_off("what will never work is tried once", story)


def _check_drains(oversight: Oversight) -> None:
    """An engine that was drained holds nothing; nobody has to wait for its leases to run out."""
    chain = oversight.chain
    commits = oversight.world.store.history(oversight.world.history.key)
    for shift in oversight.book.shifts.values():
        if shift.ended_s is None or shift.may_leave_jobs(is_well=True):
            continue
        by_s = shift.ended_s + _GIVEN_BACK_S
        version = sum(commit.time_s <= by_s for commit in commits)
        for job_id in chain.records:
            if chain.holds(job_id, version, version, status="running", worker=shift.engine):
                story = f"{job_id} is held by {shift}"
                chain.break_off("a drained engine holds nothing", story, version)


def _check_releases(oversight: Oversight) -> None:
    """A job whose handler has begun is given back by a drain, or where it is cancelled."""
    chain = oversight.chain
    for tenure in oversight.tenures.values():
        run = oversight.runs.get(tenure.lease)
        stopped_s = oversight.book.shifts[tenure.engine].stopped_s
        for call in tenure.settling:
            is_draining = stopped_s is not None and stopped_s <= call.began_s
            if call.verb not in ("release", "release_many") or run is None or is_draining:
                continue
            if not chain.holds(
                tenure.job, 0, call.began_version, lease=tenure.lease, cancel_requested=True
            ):
                chain.break_off("no job is given back without a reason", f"{run}: {call}")


def _check_repeats(oversight: Oversight) -> None:
    """A job whose handler returned is over, unless it was told to stop or its process died."""
    over: dict[str, Run] = {}
    for run in oversight.book.runs:
        if run.job in over:
            story = f"{over[run.job]}; {run}"
            oversight.chain.break_off("what is done is not run again", story, run.began_version)
        died_s = oversight.world.history.deaths.get(oversight.shift_of(run).process, 1e9)
        had_time = run.ended_s is not None and died_s > run.ended_s + oversight.lease_s
        if run.end == "returned" and not run.is_stopped and had_time:
            over[run.job] = run


def _check_backlogs(oversight: Oversight) -> None:
    """A job does not wait long in an engine: it is begun, or given back."""
    limit_s = oversight.lease_s / 2
    for tenure in oversight.tenures.values():
        run = oversight.runs.get(tenure.lease)
        begun = [run.began_s] if run is not None else []
        given = [call.began_s for call in tenure.settling]
        ended = [lost for lost in (tenure.lost_s,) if lost is not None]
        until_s = min((*begun, *given, *ended), default=oversight.world.loop.time())
        if until_s > tenure.claimed_s + limit_s and until_s < STORM_S:
            story = f"{tenure.job} in {tenure.engine} since {tenure.claimed_s:.3f} s"
            oversight.chain.break_off("no engine hoards", f"{story}, until {until_s:.3f} s")


def _check_idleness(oversight: Oversight) -> None:
    """No engine has a free slot for long while a job that it could do waits in the queue."""
    limit_s = oversight.lease_s / 2
    free = {
        engine: list(_free(oversight, shift)) for engine, shift in oversight.book.shifts.items()
    }
    for job_id, kind, since_s, until_s in _waits(oversight):
        for engine, windows in free.items():
            shift = oversight.book.shifts[engine]
            if kind not in shift.kinds or shift.is_burst:
                continue  # A burst looks again when one of its jobs has ended.
            for first_s, last_s in windows:
                if min(last_s, until_s) - max(first_s, since_s) > limit_s:
                    story = f"{kind} job {job_id} waited from {since_s:.3f} to {until_s:.3f} s"
                    story += f" beside {engine}, free from {first_s:.3f} to {last_s:.3f} s"
                    oversight.chain.break_off("no engine is idle while jobs wait", story)


def _free(oversight: Oversight, shift: Shift) -> Iterator[tuple[float, float]]:
    """When an engine had a free slot."""
    end_s = min(shift.stopped_s or STORM_S, STORM_S)
    events = [(end_s, 0)]
    for run in oversight.book.runs:
        if run.engine == shift.engine:
            events += [(run.began_s, 1), (run.ended_s or STORM_S, -1)]
    busy, since_s = 0, shift.began_s
    for at_s, change in sorted(events):
        if busy < shift.concurrency and min(at_s, end_s) > since_s:
            yield since_s, min(at_s, end_s)
        busy, since_s = busy + change, at_s


def _waits(oversight: Oversight) -> Iterator[tuple[str, str, float, float]]:
    """Each job that waited for a worker, its kind, and from when until when it did."""
    chain, world = oversight.chain, oversight.world
    commits = world.store.history(world.history.key)
    for job_id, records in chain.records.items():
        ends = [*(version for version, _ in records[1:]), len(commits) + 1]
        for (version, record), next_version in zip(records, ends, strict=True):
            if record.status != "queued" or record.run_at is not None:
                continue
            if any(version <= paused < next_version for paused in chain.paused):
                continue
            is_last = next_version > len(commits)
            until_s = world.loop.time() if is_last else commits[next_version - 1].time_s
            yield job_id, record.kind, commits[version - 1].time_s, until_s

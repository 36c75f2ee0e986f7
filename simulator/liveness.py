"""Checks of efficiency while few things fail, and of liveness after all faults have ended.

**Efficiency.** No lease is taken from a worker whose process lives, no living broker is replaced,
no job is handed to a dead worker, and nothing is written without a reason.

**Liveness**, once the faults have ended: within a bounded time one broker leads, takeovers cease,
every client gets answers, the jobs of dead workers are reclaimed, and every job reaches its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bucketq.errors import UnavailableError
from bucketq.model.settings import Settings
from simulator.fault_schedule import SLOW_S, FaultSchedule
from simulator.invariants.broker_invariants import Takeover
from simulator.invariants.queue_invariants import CommitChain
from simulator.machines import LEADERS
from simulator.simulated_cluster import CLOCKS_DIFFER_S, SimulatedCluster

ELECTED_WITHIN_S = 120.0
"""A broker that was deposed several times while alive stands again after 90 s; a queue may not be
without a leader for much longer."""
ANSWERED_WITHIN_S = 30.0
"""How long a client may take to find the leader: it may wait on a dead connection first."""
_SWEEP_S = 4.0
"""How long a leader may take to notice that a lease has expired."""
_UNDER_WAY_S = 15.0
"""How late a heartbeat may arrive that was sent before the faults ended."""
_HAND_OUT_S = 1.0
"""How long after the death of its process a waiting claim may still be answered."""
_FORGOTTEN = "older than what the queue remembers"
"""What a queue answers to a request that it may have forgotten."""
_WELL: tuple[FaultSchedule, ...] = ("nothing", "restarts")
"""Schedules in which a program that shuts down is answered in time."""
_DELAY_S = 0.2
"""How much less time a write may take than the one before it."""


def check_efficiency(cluster: SimulatedCluster, chain: CommitChain, faults: FaultSchedule) -> None:
    """Check that healthy processes are left alone and nothing needless is written."""
    _check_leases(cluster, chain, faults)
    _check_brokers(cluster, chain)
    if faults != "slow-storage":
        _check_hand_outs(cluster, chain)
    if faults == "leader-kills" and chain.brokers.takeovers:
        _check_reclaimed_though(cluster, chain)
    if all(program.kind not in ("direct", "group", "frugal") for program in cluster.programs):
        spread_s = SLOW_S[1] - SLOW_S[0] if faults == "slow-storage" else 0.0
        _check_needless_commits(cluster, chain, _DELAY_S + spread_s)


def check_liveness(cluster: SimulatedCluster, chain: CommitChain, faults_ended_s: float) -> None:
    """Check that the cluster has settled after the faults ended, at ``faults_ended_s``."""
    for error in (*(e for t in cluster.programs for e in t.errors), *cluster.network.errors):
        raise error
    final = chain.final
    if final is None:
        chain.violate("the queue comes up", "nothing was ever committed")
    if any(program.kind in LEADERS for program in cluster.programs):
        _check_leadership(cluster, chain, faults_ended_s)
    for job in final.jobs:
        if job.status != "dead":
            chain.violate("every job comes to its end", f"{job.id} is {job.status}")
    if cluster.is_deep and (names := cluster.left_over()):
        chain.violate("what is left over is deleted", ", ".join(names))


def is_settled(cluster: SimulatedCluster, faults_ended_s: float) -> bool:
    """Whether the cluster has settled, for long enough to check it."""
    state, now_s = cluster.state(), cluster.loop.time()
    if state is None or any(job.status != "dead" for job in state.jobs):
        return False
    if cluster.is_deep and cluster.left_over():
        return False
    if all(program.kind not in LEADERS for program in cluster.programs):
        return True
    since_s = max(faults_ended_s, cluster.taken_over_s())
    return cluster.leader() is not None and now_s >= since_s + ANSWERED_WITHIN_S + 5


def _process_of(worker: str | None) -> str:
    return (worker or "").rpartition("/")[0]


def _check_leases(cluster: SimulatedCluster, chain: CommitChain, faults: FaultSchedule) -> None:
    """A healthy worker loses no lease, whatever happens to brokers.

    An engine that shuts down while it gets no answers may leave a job to its lease.
    """
    history = cluster.history
    commits = cluster.store.history(history.key)
    excused = set(history.excused)
    if any(program.kind in ("auto", "spawn") for program in cluster.programs):
        # Brokers are started at addresses that ``address`` clients do not know.
        excused |= {name for name in history.clients if "/address" in name}
    for job_id, records in chain.records.items():
        for version, record in records:
            lost = [failure for failure in record.errors if failure.cause == "lost"]
            for failure in lost:
                if "@" in (failure.worker or ""):
                    continue  # A batch outlives its driver, and the next driver may be late.
                name, at_s = _process_of(failure.worker), commits[version - 1].time_s
                engine_run = cluster.worker_log.engine_runs.get(failure.worker or "")
                if engine_run is not None and engine_run.may_leave_jobs(is_well=faults in _WELL):
                    continue
                if name not in excused and history.deaths.get(name, at_s) >= at_s:
                    detail = f"{job_id}: {failure.worker}"
                    chain.violate("no lease is taken from a healthy worker", detail, version)


def false_takeovers(
    cluster: SimulatedCluster, chain: CommitChain
) -> Iterator[tuple[Takeover, Takeover]]:
    """Takeovers from a broker that had not left or died, was not frozen, and not by force."""
    history = cluster.history
    for before, after in pairwise(chain.brokers.takeovers):
        is_gone = history.deaths.get(before.writer, after.time_s) < after.time_s
        is_excused = before.writer in history.excused or after.writer in history.forced
        if not (after.follows_retired or is_gone or is_excused):
            yield before, after


def _check_brokers(cluster: SimulatedCluster, chain: CommitChain) -> None:
    """A broker is replaced only if it has left, has died, was frozen, or by force."""
    for before, after in false_takeovers(cluster, chain):
        detail = f"{after.writer} in place of {before.writer}, at {after.time_s:.3f} s"
        chain.violate("a living broker is left alone", detail, after.version)


def _check_hand_outs(cluster: SimulatedCluster, chain: CommitChain) -> None:
    """No job is handed to a worker that died a while ago."""
    commits, deaths = cluster.store.history(cluster.history.key), cluster.history.deaths
    for worker, versions in chain.handed_to.items():
        died_s = deaths.get(_process_of(worker))
        for version in versions:
            if died_s is not None and commits[version - 1].time_s > died_s + _HAND_OUT_S:
                chain.violate("no job is handed to the dead", worker, version)


def _check_needless_commits(cluster: SimulatedCluster, chain: CommitChain, delay_s: float) -> None:
    """Empty claims and heartbeats cause no commits, except one every third of a lease."""
    commits, lease_s = cluster.store.history(cluster.history.key), _settings(chain).lease_s
    written_s: dict[str, float] = {}
    for version in chain.quiet:
        commit = commits[version - 1]
        if commit.time_s < written_s.get(commit.writer, 0.0) + lease_s / 3 - delay_s:
            chain.violate("nothing is written without a reason", commit.writer, version)
        written_s[commit.writer] = commit.time_s


def _settings(chain: CommitChain) -> Settings:
    return chain.final.settings if chain.final else Settings()


def _check_leadership(cluster: SimulatedCluster, chain: CommitChain, faults_ended_s: float) -> None:
    now_s, takeovers = cluster.loop.time(), chain.brokers.takeovers
    leader = cluster.leader()
    if leader is None or sum(program.leads for program in cluster.programs) != 1:
        names = [cluster.factory.name_of(program) for program in cluster.programs if program.leads]
        chain.violate("one broker leads", f"{names} do, after {now_s - faults_ended_s:.0f} s")
    taken_s = max(faults_ended_s, takeovers[-1].time_s)
    if taken_s > faults_ended_s + ELECTED_WITHIN_S:
        chain.violate("takeovers cease", f"{taken_s - faults_ended_s:.0f} s after the faults did")
    _check_answers(cluster, chain, taken_s + ANSWERED_WITHIN_S)
    _check_reclaimed(cluster, chain, max(faults_ended_s + _UNDER_WAY_S, taken_s), faults_ended_s)


def _check_answers(cluster: SimulatedCluster, chain: CommitChain, since_s: float) -> None:
    """Every call that begins later is answered, and not with an unknown outcome."""
    history, latest_s = cluster.history, cluster.loop.time() - 2 * ANSWERED_WITHIN_S
    settings = _settings(chain)
    remembers_few = (
        settings.max_sessions < len(cluster.programs)
        or settings.session_retention_s < CLOCKS_DIFFER_S
    )
    for call in history.calls:
        name = _process_of(call.actor)
        # A retry may be older than what the queue remembers; that it is refused is an answer.
        if call.began_s <= since_s or name not in history.clients or call.detail.get("request"):
            continue
        is_cut_off = call.was_cancelled or name in history.deaths
        hangs = call.ended_s is None and call.began_s < latest_s and not is_cut_off
        # A queue that may remember fewer sessions than it has clients forgets what is under way,
        # and so does one that remembers them for less time than the clocks of its writers differ.
        is_forgotten = remembers_few and _FORGOTTEN in str(call.error)
        if hangs or (isinstance(call.error, UnavailableError) and not is_forgotten):
            chain.violate("every client gets answers", str(call))


def _check_reclaimed(
    cluster: SimulatedCluster, chain: CommitChain, since_s: float, faults_ended_s: float
) -> None:
    """The job of a worker that was dead when the faults ended is reclaimed in time."""
    for orphan in _orphans(cluster, chain):
        lost_s = orphan.lease_s + _settings(chain).grace_s + _SWEEP_S
        limit_s = max(since_s, orphan.since_s) + lost_s
        if orphan.died_s <= faults_ended_s and orphan.until_s > limit_s:
            detail = f"{orphan.detail}, and was to by {limit_s:.0f} s"
            chain.violate("the jobs of the dead are reclaimed", detail, orphan.version)


def _check_reclaimed_though(cluster: SimulatedCluster, chain: CommitChain) -> None:
    """The same while no broker lives for a lease: silence adds up over several leaders.

    Each leader records the silence that it saw at least every third of a lease.
    """
    for orphan in _orphans(cluster, chain):
        limit_s = max(orphan.died_s, orphan.since_s) + 4 * orphan.lease_s
        if orphan.until_s > limit_s:
            chain.violate("the jobs of the dead are reclaimed", orphan.detail, orphan.version)


@dataclass(frozen=True)
class _Orphan:
    """A job whose worker has died."""

    version: int
    since_s: float
    died_s: float
    until_s: float
    lease_s: float
    """How long its worker may be silent before the lease expires."""
    detail: str


def _orphans(cluster: SimulatedCluster, chain: CommitChain) -> Iterator[_Orphan]:
    commits, deaths = cluster.store.history(cluster.history.key), cluster.history.deaths
    for job_id, records in chain.records.items():
        for index, (version, record) in enumerate(records):
            died_s = deaths.get(_process_of(record.worker))
            if record.status != "running" or died_s is None:
                continue
            ends = [
                later
                for later, after in records[index + 1 :]
                if (after.status, after.attempt) != ("running", record.attempt)
            ]
            until_s = commits[ends[0] - 1].time_s if ends else cluster.loop.time()
            detail = f"{job_id} left its dead worker {record.worker} at {until_s:.0f} s"
            lease_s = record.lease_s or _settings(chain).lease_s
            yield _Orphan(version, commits[version - 1].time_s, died_s, until_s, lease_s, detail)

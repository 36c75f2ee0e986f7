"""What must hold beyond what must hold at any time: thrift in fair weather, rest after a storm.

**In fair weather** nobody loses what it has by no fault of its own: no lease is taken from a worker
whose process lives, no broker is replaced that lives, no job is handed to the dead, and nothing is
written without a reason.

**After a storm**, once faults have stopped: within a bounded time one broker leads, takeovers
cease, every client gets answers, the jobs of the dead are reclaimed, and every job comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bucketq.errors import UnavailableError
from bucketq.model.settings import Settings
from simulator.fault_schedule import SLOW_S, Weather
from simulator.invariants import Chain
from simulator.machines import LEADERS
from simulator.simulated_cluster import World

ELECTED_WITHIN_S = 120.0
"""A broker that was deposed over and over while it was alive stands again after a minute and a
half; longer than that nobody may be without one."""
ANSWERED_WITHIN_S = 30.0
"""How long a client may take to find a broker that leads: it may sit on a dead connection."""
_SWEEP_S = 4.0
_UNDER_WAY_S = 15.0
"""How late a heartbeat may arrive that was sent before."""
_HAND_OUT_S = 1.0
_WELL: tuple[Weather, ...] = ("calm", "visits")
"""Where whoever ends in order is answered in time."""
_DELAY_S = 0.2
"""How much sooner a write may land than the one before it did, each measured from its beginning."""


def check_fair(world: World, chain: Chain, weather: Weather) -> None:
    """Check what must hold where only some things go wrong, and those not all the time."""
    _check_leases(world, chain, weather)
    _check_brokers(world, chain)
    if weather != "slow":
        _check_hand_outs(world, chain)
    if weather == "crashes" and chain.brokers.takeovers:
        _check_reclaimed_though(world, chain)
    if all(tenant.kind not in ("direct", "group", "frugal") for tenant in world.tenants):
        spread_s = SLOW_S[1] - SLOW_S[0] if weather == "slow" else 0.0
        _check_thrift(world, chain, _DELAY_S + spread_s)


def check_rest(world: World, chain: Chain, calm_s: float) -> None:
    """Check what must hold some time after the faults have ended, at ``calm_s``."""
    for error in (*(e for t in world.tenants for e in t.errors), *world.network.errors):
        raise error
    final = chain.final
    if final is None:
        chain.break_off("the queue comes up", "nothing was ever committed")
    if any(tenant.kind in LEADERS for tenant in world.tenants):
        _check_leadership(world, chain, calm_s)
    for job in final.jobs:
        if job.status != "dead":
            chain.break_off("every job comes to its end", f"{job.id} is {job.status}")


def is_settled(world: World, calm_s: float) -> bool:
    """Whether everything has come to rest, and has been there long enough to be judged."""
    state, now_s = world.state(), world.loop.time()
    if state is None or any(job.status != "dead" for job in state.jobs):
        return False
    if all(tenant.kind not in LEADERS for tenant in world.tenants):
        return True
    since_s = max(calm_s, world.taken_over_s())
    return world.leader() is not None and now_s >= since_s + ANSWERED_WITHIN_S + 5


def _process_of(worker: str | None) -> str:
    return (worker or "").rpartition("/")[0]


def _check_leases(world: World, chain: Chain, weather: Weather) -> None:
    """While nothing befalls a worker, whatever befalls brokers, it loses no job.

    An engine that ends while nobody answers may leave a job to its lease.
    """
    history = world.history
    commits = world.store.history(history.key)
    excused = set(history.excused)
    if any(tenant.kind in ("auto", "spawn") for tenant in world.tenants):
        # Brokers come up where those who know some addresses only do not look.
        excused |= {name for name in history.clients if "/address" in name}
    for job_id, records in chain.records.items():
        for version, record in records:
            lost = [failure for failure in record.errors if failure.cause == "lost"]
            for failure in lost:
                if "@" in (failure.worker or ""):
                    continue  # A batch outlives its driver, and the next one may be late.
                name, at_s = _process_of(failure.worker), commits[version - 1].time_s
                shift = world.book.shifts.get(failure.worker or "")
                if shift is not None and shift.may_leave_jobs(is_well=weather in _WELL):
                    continue
                if name not in excused and history.deaths.get(name, at_s) >= at_s:
                    story = f"{job_id}: {failure.worker}"
                    chain.break_off("no lease is taken from a healthy worker", story, version)


def _check_brokers(world: World, chain: Chain) -> None:
    """A broker is replaced when it has left, has died, stood still, or by force."""
    history, takeovers = world.history, chain.brokers.takeovers
    for before, after in pairwise(takeovers):
        is_gone = history.deaths.get(before.writer, after.time_s) < after.time_s
        is_excused = before.writer in history.excused or after.writer in history.forced
        if not (after.follows_retired or is_gone or is_excused):
            story = f"{after.writer} in place of {before.writer}, at {after.time_s:.3f} s"
            chain.break_off("a living broker is left alone", story, after.version)


def _check_hand_outs(world: World, chain: Chain) -> None:
    """Nobody is handed a job who has been dead for a while."""
    commits, deaths = world.store.history(world.history.key), world.history.deaths
    for worker, versions in chain.handed_to.items():
        died_s = deaths.get(_process_of(worker))
        for version in versions:
            if died_s is not None and commits[version - 1].time_s > died_s + _HAND_OUT_S:
                chain.break_off("no job is handed to the dead", worker, version)


def _check_thrift(world: World, chain: Chain, delay_s: float) -> None:
    """Nothing is written for empty claims and heartbeats, but silences every third of a lease."""
    commits, lease_s = world.store.history(world.history.key), _settings(chain).lease_s
    written_s: dict[str, float] = {}
    for version in chain.quiet:
        commit = commits[version - 1]
        if commit.time_s < written_s.get(commit.writer, 0.0) + lease_s / 3 - delay_s:
            chain.break_off("nothing is written without a reason", commit.writer, version)
        written_s[commit.writer] = commit.time_s


def _settings(chain: Chain) -> Settings:
    return chain.final.settings if chain.final else Settings()


def _check_leadership(world: World, chain: Chain, calm_s: float) -> None:
    now_s, takeovers = world.loop.time(), chain.brokers.takeovers
    leader = world.leader()
    if leader is None or sum(tenant.leads for tenant in world.tenants) != 1:
        names = [world.trade.name_of(tenant) for tenant in world.tenants if tenant.leads]
        chain.break_off("one broker leads", f"{names} do, after {now_s - calm_s:.0f} s")
    taken_s = max(calm_s, takeovers[-1].time_s)
    if taken_s > calm_s + ELECTED_WITHIN_S:
        chain.break_off("takeovers cease", f"{taken_s - calm_s:.0f} s after the faults did")
    _check_answers(world, chain, taken_s + ANSWERED_WITHIN_S)
    _check_reclaimed(world, chain, max(calm_s + _UNDER_WAY_S, taken_s), calm_s)


def _check_answers(world: World, chain: Chain, since_s: float) -> None:
    """Everybody who asks from then on is answered, and not with an unknown outcome."""
    history, latest_s = world.history, world.loop.time() - 2 * ANSWERED_WITHIN_S
    for call in history.calls:
        name = _process_of(call.actor)
        # One that is sent again may be older than what the queue remembers: that is an answer.
        if call.began_s <= since_s or name not in history.clients or call.detail.get("request"):
            continue
        is_cut_off = call.was_cancelled or name in history.deaths
        hangs = call.ended_s is None and call.began_s < latest_s and not is_cut_off
        if hangs or isinstance(call.error, UnavailableError):
            chain.break_off("every client gets answers", str(call))


def _check_reclaimed(world: World, chain: Chain, since_s: float, calm_s: float) -> None:
    """The job of a worker that was dead when the faults ended goes to another in time."""
    for orphan in _orphans(world, chain):
        lost_s = orphan.lease_s + _settings(chain).grace_s + _SWEEP_S
        limit_s = max(since_s, orphan.since_s) + lost_s
        if orphan.died_s <= calm_s and orphan.until_s > limit_s:
            story = f"{orphan.story}, and was to by {limit_s:.0f} s"
            chain.break_off("the jobs of the dead are reclaimed", story, orphan.version)


def _check_reclaimed_though(world: World, chain: Chain) -> None:
    """The same while no broker lives for a lease: what one has heard the next one knows.

    Each adds what it has written down before it dies, and that is a third of a lease at least.
    """
    for orphan in _orphans(world, chain):
        limit_s = max(orphan.died_s, orphan.since_s) + 4 * orphan.lease_s
        if orphan.until_s > limit_s:
            chain.break_off("the jobs of the dead are reclaimed", orphan.story, orphan.version)


@dataclass(frozen=True)
class _Orphan:
    """A job whose worker has died."""

    version: int
    since_s: float
    died_s: float
    until_s: float
    lease_s: float
    """How long its worker may be silent."""
    story: str


def _orphans(world: World, chain: Chain) -> Iterator[_Orphan]:
    commits, deaths = world.store.history(world.history.key), world.history.deaths
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
            until_s = commits[ends[0] - 1].time_s if ends else world.loop.time()
            story = f"{job_id} left its dead worker {record.worker} at {until_s:.0f} s"
            lease_s = record.lease_s or _settings(chain).lease_s
            yield _Orphan(version, commits[version - 1].time_s, died_s, until_s, lease_s, story)

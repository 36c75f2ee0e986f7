"""Whose worker is silent, and who only could not be heard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw

from bucketq.commit.direct_lease_expiry import DirectLeaseExpiry
from bucketq.model.base import NewJob
from bucketq.model.operations import Claim, Expire, Heartbeat, LeaseRef, Push, Request
from bucketq.model.state import State
from bucketq.model.transitions import apply

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_S, GRACE_S, MARGIN_S = 30, 15, 300
"""The default settings."""


class Watched:
    """A queue with running jobs, watched by a process whose wall clock is right or wrong."""

    def __init__(
        self, jobs: int = 1, wall_error_s: float = 0.0, lease_s: float | None = None
    ) -> None:
        self.state = State(incarnation="test", created_at=BEGAN)
        self.watch = DirectLeaseExpiry()
        self.wall_error_s = wall_error_s
        new = tuple(NewJob(id=f"job-{n}", kind="mail", payload=Raw(b"1")) for n in range(jobs))
        self._apply(Push(jobs=new), 0)
        self.claim(0, lease_s)

    def claim(self, at_s: float, lease_s: float | None = None) -> None:
        self._apply(Claim(worker="w", secret="s" * 32, limit=100, lease_s=lease_s), at_s)

    def beat(self, at_s: float, job_id: str = "job-0") -> None:
        lease = self.state.jobs.by_id[job_id].lease or ""
        self._apply(Heartbeat(leases=(LeaseRef(job_id, lease),)), at_s)

    def stale_at(self, at_s: float, look_age_s: float = 0.0) -> list[str]:
        now = BEGAN + timedelta(seconds=at_s + self.wall_error_s)
        at_s += 1000
        stale = self.watch.stale(self.state, now, at_s, at_s - look_age_s)
        return [expire.job for expire in stale]

    def first_stale(self, begin_s: float, end_s: float, step_s: float = 1.0) -> float | None:
        """Look again and again; return when the first job was found stale."""
        at_s = begin_s
        while at_s <= end_s:
            if self.stale_at(at_s):
                return at_s
            at_s += step_s
        return None

    def _apply(self, operation: Push | Claim | Heartbeat, at_s: float) -> None:
        applied = apply(self.state, Request(operation), BEGAN + timedelta(seconds=at_s))
        assert applied.error is None


def test_a_worker_is_silent_after_a_lease_and_a_grace_by_the_watchers_own_clock() -> None:
    assert Watched().first_stale(0, 1000) == LEASE_S + GRACE_S


def test_the_verdict_names_the_attempt_that_was_silent() -> None:
    watched = Watched()
    assert watched.first_stale(0, LEASE_S + GRACE_S - 1) is None
    now = BEGAN + timedelta(seconds=LEASE_S + GRACE_S)
    at_s = 1000.0 + LEASE_S + GRACE_S
    assert watched.watch.stale(watched.state, now, at_s, at_s) == [Expire(job="job-0", attempt=1)]


def test_a_heartbeat_begins_the_count_anew() -> None:
    watched = Watched()
    for at_s in range(0, 200, 10):
        assert watched.first_stale(at_s, at_s + 9) is None
        watched.beat(at_s + 9.5)
    assert watched.first_stale(200, 1000) == 200 + LEASE_S + GRACE_S


def test_a_look_that_is_not_the_newest_shows_silence_until_then_only() -> None:
    """Heartbeats may have come since, which this process could not see: the storage was away."""
    watched = Watched()
    assert watched.first_stale(0, LEASE_S + GRACE_S - 3) is None
    assert watched.stale_at(LEASE_S + GRACE_S + 4, look_age_s=5) == []
    assert watched.stale_at(LEASE_S + GRACE_S + 9, look_age_s=5) == ["job-0"]


def test_a_new_attempt_begins_the_count_anew() -> None:
    watched = Watched()
    assert watched.first_stale(0, 40) is None
    now = BEGAN + timedelta(seconds=40)
    apply(watched.state, Request(Expire(job="job-0", attempt=1)), now)
    watched.claim(40)
    assert watched.first_stale(41, 1000) == 41 + LEASE_S + GRACE_S


def test_only_the_silent_ones_are_stale() -> None:
    watched = Watched(jobs=3)
    for at_s in range(0, LEASE_S + GRACE_S, 5):
        assert watched.first_stale(at_s, at_s + 4) is None
        watched.beat(at_s + 4.5, "job-1")
    assert watched.stale_at(LEASE_S + GRACE_S) == ["job-0", "job-2"]


def test_a_wrong_wall_clock_takes_no_job_from_a_worker_within_the_margin() -> None:
    for wall_error_s in (-86_400.0, -100.0, 100.0, MARGIN_S - 20):
        watched = Watched(wall_error_s=wall_error_s)
        assert watched.first_stale(0, 1000) == LEASE_S + GRACE_S


def test_a_process_that_has_just_come_goes_by_the_wall_with_a_wide_margin() -> None:
    assert Watched().stale_at(LEASE_S + MARGIN_S - 1) == []
    assert Watched().stale_at(LEASE_S + MARGIN_S) == ["job-0"]


def test_a_process_that_has_just_come_waits_by_its_own_clock_within_the_margin() -> None:
    assert Watched().first_stale(100, 1000) == 100 + LEASE_S + GRACE_S


def test_after_a_pause_every_job_keeps_at_least_the_grace() -> None:
    watched = Watched()
    assert watched.first_stale(0, 40) is None
    # It stood still, and when it wakes the job has been silent for far more than a lease.
    assert watched.first_stale(40 + LEASE_S + 100, 1000) == 40 + LEASE_S + 100 + GRACE_S


def test_a_pause_is_a_floor_under_what_was_left_and_not_a_new_lease() -> None:
    watched = Watched()
    assert watched.first_stale(0, 2) is None
    woken_s = 2 + LEASE_S + 1
    assert watched.first_stale(woken_s, 1000) == woken_s + GRACE_S


def test_looking_often_costs_one_scan_a_second() -> None:
    watched = Watched()
    assert watched.first_stale(0, LEASE_S + GRACE_S, step_s=1.02) is None
    assert watched.stale_at(LEASE_S + GRACE_S + 0.2) == [], "the last look was too recent"
    assert watched.stale_at(LEASE_S + GRACE_S + 1) == ["job-0"]


def test_a_process_that_claims_rarely_still_notices_silence() -> None:
    watched = Watched()
    assert watched.first_stale(0, 1000, step_s=LEASE_S - 10) == 60


def test_after_a_long_pause_the_wall_clock_takes_nothing_before_the_grace_is_over() -> None:
    watched = Watched()
    assert watched.first_stale(0, 10) is None
    woken_s = LEASE_S + MARGIN_S + 100
    assert watched.first_stale(woken_s, 10_000) == woken_s + GRACE_S


def test_a_wall_clock_that_jumps_far_ahead_takes_nothing_before_the_grace_is_over() -> None:
    watched = Watched()
    assert watched.stale_at(0) == []
    watched.wall_error_s = 2 * MARGIN_S
    assert watched.first_stale(1, 1000) == GRACE_S


def test_a_job_that_ends_and_comes_again_is_watched_afresh() -> None:
    watched = Watched()
    assert watched.first_stale(0, 30) is None
    apply(watched.state, Request(Expire(job="job-0", attempt=1)), BEGAN)
    assert watched.stale_at(40) == []
    watched.claim(50)
    assert watched.first_stale(50, 1000) == 50 + LEASE_S + GRACE_S


@pytest.mark.parametrize("lease_s", [2.0, 100.0])
def test_a_lease_of_its_own_length_counts_instead_of_the_setting(lease_s: float) -> None:
    assert Watched(lease_s=lease_s).first_stale(0, 1000) == lease_s + GRACE_S


@pytest.mark.parametrize("lease_s", [2.0, 3600.0])
def test_the_wall_clock_has_to_pass_a_lease_of_its_own_length_too(lease_s: float) -> None:
    late = Watched(lease_s=lease_s)
    assert late.stale_at(lease_s + MARGIN_S - 1) == []
    assert Watched(lease_s=lease_s).stale_at(lease_s + MARGIN_S) == ["job-0"]


def test_after_a_pause_a_short_lease_keeps_the_grace_too() -> None:
    watched = Watched(lease_s=2.0)
    assert watched.stale_at(0) == []
    assert watched.stale_at(25) == []
    assert watched.first_stale(26, 1000) == 25 + GRACE_S

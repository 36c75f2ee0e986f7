"""Whose worker is silent, to a broker that hears every heartbeat."""

from __future__ import annotations

import pytest

from bucketq.broker.lease_expiry import LeaseExpiry
from tests.unit.model.driver import Driver

LEASE_S, GRACE_S = 30.0, 15.0
"""The default settings."""
BEGAN_S = 5000.0


class Watched:
    """A queue with running jobs, and the broker that listens for their workers."""

    def __init__(self, jobs: int = 1, lease_s: float | None = None) -> None:
        self.driver = Driver()
        self.watch = LeaseExpiry(BEGAN_S)
        self.driver.push_many(*(f"job-{number}" for number in range(jobs)))
        self.driver.claim(limit=jobs, lease_s=lease_s)

    def hear(self, at_s: float, job_id: str = "job-0", attempt: int = 1) -> None:
        self.watch.hear(job_id, attempt, BEGAN_S + at_s)

    def stale_at(self, at_s: float) -> list[str]:
        return [expire.job for expire in self.watch.stale(self.driver.state, BEGAN_S + at_s)]

    def first_stale(self, begin_s: float, end_s: float = 1000.0) -> float | None:
        """Look once a second; return when the first job was found stale."""
        at_s = begin_s
        while at_s <= end_s:
            if self.stale_at(at_s):
                return at_s
            at_s += 1
        return None

    def succeed(self, at_s: float) -> None:
        """Write down what is known, and go on as the next broker, on a host with another clock."""
        self.driver.ok(self.watch.write_down(self.driver.state, BEGAN_S + at_s))
        self.driver.reload()
        self.watch = LeaseExpiry(BEGAN_S + at_s)


def test_a_worker_is_silent_after_a_lease() -> None:
    watched = Watched()
    watched.hear(0)
    assert watched.first_stale(1) == LEASE_S


@pytest.mark.parametrize("lease_s", [20.0, 120.0])
def test_a_lease_of_its_own_length_counts_instead_of_the_setting(lease_s: float) -> None:
    watched = Watched(lease_s=lease_s)
    watched.hear(0)
    assert watched.first_stale(1) == lease_s


def test_a_worker_that_was_heard_keeps_its_job_from_then_on() -> None:
    watched = Watched(jobs=2)
    for at_s in range(200):
        if at_s % 10 == 0:
            watched.hear(at_s)
        assert watched.stale_at(at_s) == (["job-1"] if at_s >= LEASE_S else [])


def test_no_wall_clock_is_looked_at() -> None:
    watched = Watched()
    watched.hear(0)
    watched.driver.wait(-1e6)
    assert watched.stale_at(1) == []
    watched.driver.wait(3e6)
    assert watched.first_stale(2) == LEASE_S


def test_the_verdict_names_the_attempt_that_was_silent() -> None:
    watched = Watched()
    watched.first_stale(0, 29)
    (expire,) = watched.watch.stale(watched.driver.state, BEGAN_S + 30)
    assert (expire.job, expire.attempt) == ("job-0", 1)


def test_a_heartbeat_of_an_earlier_attempt_does_not_count_for_the_next() -> None:
    watched = Watched()
    watched.first_stale(0, 20)
    job = watched.driver.job("job-0")
    watched.driver.expire(job)
    watched.driver.claim()
    assert watched.stale_at(21) == []
    watched.hear(40, attempt=1)
    assert watched.first_stale(41) == 71, "who hears the old attempt begins anew with the new one"


def test_a_job_that_is_over_is_forgotten() -> None:
    watched = Watched(jobs=2)
    watched.stale_at(0)
    watched.driver.complete(watched.driver.job("job-0"))
    assert watched.first_stale(1) == LEASE_S
    assert watched.stale_at(31) == ["job-1"]
    assert list(watched.watch._heard) == ["job-1"]


def test_a_successor_continues_from_the_durations_that_were_written() -> None:
    watched = Watched()
    watched.hear(0)
    watched.first_stale(1, 20)
    watched.succeed(20)
    assert watched.driver.job("job-0").silent_s == 20
    # Ten seconds were left, and the grace is a floor under them.
    assert watched.first_stale(20) == 20 + GRACE_S


def test_the_grace_is_not_a_new_lease_if_more_than_it_is_left() -> None:
    watched = Watched()
    watched.hear(0)
    watched.first_stale(1, 5)
    watched.succeed(5)
    assert watched.first_stale(5) == LEASE_S


def test_no_lease_ends_before_the_grace_after_a_takeover() -> None:
    watched = Watched()
    watched.first_stale(0, 29)
    watched.succeed(29.9)
    assert watched.first_stale(30) == 45
    watched.succeed(45)
    watched.hear(46)
    assert watched.first_stale(46) == 76


def test_brokers_that_keep_crashing_still_reclaim() -> None:
    """Each lives longer than the grace, and writes down what it has heard every ten seconds."""
    watched = Watched()
    watched.stale_at(0)
    for at_s in range(0, 300, 10):
        if at_s and at_s % 20 == 0:
            watched.watch = LeaseExpiry(BEGAN_S + at_s)
            watched.driver.reload()
        if watched.first_stale(at_s, at_s + 9) is not None:
            break
        watched.driver.ok(watched.watch.write_down(watched.driver.state, BEGAN_S + at_s + 10))
    assert at_s + 10 <= 60


def test_after_the_broker_was_frozen_every_lease_keeps_the_grace() -> None:
    watched = Watched()
    watched.hear(0)
    watched.first_stale(1, 10)
    assert watched.stale_at(100) == [], "the workers could not be heard meanwhile"
    assert watched.first_stale(101) == 100 + GRACE_S


def test_a_worker_that_is_heard_after_the_standstill_has_its_whole_lease() -> None:
    watched = Watched(jobs=2)
    watched.first_stale(0, 10)
    watched.stale_at(100)
    watched.hear(101)
    assert watched.first_stale(102) == 115
    assert watched.stale_at(116) == ["job-1"]


def test_ticks_between_sweeps_show_that_the_process_ran() -> None:
    watched = Watched()
    watched.hear(0)
    for half in range(64):
        watched.watch.tick(BEGAN_S + half / 2)
    assert watched.stale_at(31.5) == ["job-0"]


def test_what_the_broker_itself_writes_is_not_a_heartbeat() -> None:
    """However often it does so, and although a worker was not silent at all by then."""
    watched = Watched()
    watched.hear(0)
    for at_s in range(1, int(LEASE_S)):
        assert watched.stale_at(at_s) == []
        state, now_s = watched.driver.state, BEGAN_S + at_s
        silences = watched.watch.write_down(state, now_s if at_s > 1 else BEGAN_S)
        watched.driver.wait(1)
        watched.driver.ok(silences)
        watched.watch.wrote_down(watched.driver.state)
    assert watched.stale_at(LEASE_S) == ["job-0"]

"""The promises of jobs that expire: take the reason away, and the simulator finds out."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bucketq.model.records import JobRecord
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
_HAS_EXPIRED = JobRecord.has_expired


@pytest.mark.parametrize("deep", [pytest.param(False, marks=pytest.mark.full), True])
def test_jobs_expire_in_their_time_under_every_fault(deep: bool) -> None:
    assert simulate(4, scenario="expiry", deep=deep).commits > 0


def test_a_claim_that_takes_expired_jobs_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(JobRecord, "has_expired", lambda _self, _now: False)
    expect("an expired job is never started", scenario="expiry")


def test_a_job_that_expires_too_early_is_noticed(monkeypatch: Patch) -> None:
    def early(self: JobRecord, now: datetime) -> bool:
        return _HAS_EXPIRED(self, now + timedelta(seconds=0.5))

    monkeypatch.setattr(JobRecord, "has_expired", early)
    expect("a job expires in its time", scenario="expiry")

"""Schedules: what is kept of them, and how they fire."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import (
    InvalidRequestError,
    QueueFullError,
    RejectedError,
    ScheduleNotFoundError,
)
from bucketq.model.base import NewJob
from bucketq.model.operations import AnyOperation, Cancel, Complete, Configure
from bucketq.model.schedules import (
    MOST_RUNS,
    Fire,
    PauseSchedule,
    ReadSchedules,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleRecord,
    SetSchedule,
)
from tests.unit.model.driver import START, Driver, lease_of, new_job

HOUR = timedelta(hours=1)


def queue(**settings: Any) -> Driver:
    return Driver(max_format=2, **settings)


def hourly(name: str = "tick", **fields: Any) -> SetSchedule:
    return SetSchedule(schedule=name, job=new_job("", "ping", 1), **{"every_s": 3600.0} | fields)


def row_of(driver: Driver, name: str = "tick") -> ScheduleRecord:
    row = driver.state.schedules.get(name)
    assert row is not None
    return row


def firing(driver: Driver, *runs: datetime, until: datetime | None = None) -> Fire:
    """What a process submits that has computed runs from the present row."""
    row = row_of(driver)
    return Fire(
        schedule=row.id,
        timing=row.timing,
        created_at=row.created_at,
        after=row.decided_at,
        until=until or runs[-1],
        runs=runs,
    )


def test_a_schedule_is_set_once_and_changed_only_by_something_else() -> None:
    driver = queue()
    assert driver.ok(hourly()) == "created"
    before = driver.state.version, list(driver.state.changes)
    driver.wait(10)
    assert driver.ok(hourly()) == "unchanged"
    assert (driver.state.version, driver.state.changes) == before
    assert driver.ok(hourly(missed="all")) == "changed"
    assert [row.missed for row in driver.ok(ReadSchedules())] == ["all"]


def test_other_content_keeps_what_was_decided_and_other_times_do_not() -> None:
    driver = queue()
    driver.ok(hourly())
    driver.wait(3600)
    driver.ok(firing(driver, START + HOUR))
    driver.wait(60)
    driver.ok(hourly(alone=True))
    row = row_of(driver)
    assert (row.created_at, row.decided_at) == (START, START + HOUR)
    driver.ok(hourly(every_s=60.0))
    row = row_of(driver)
    assert (row.created_at, row.decided_at) == (driver.now, driver.now)
    assert row.last_job


def test_a_schedule_stays_paused_when_it_is_declared_again() -> None:
    driver = queue()
    driver.ok(hourly())
    driver.ok(PauseSchedule(schedule="tick"))
    assert driver.ok(hourly()) == "unchanged"
    assert driver.ok(hourly(missed="skip")) == "changed"
    assert row_of(driver).paused
    driver.ok(hourly(every_s=1.0))
    assert row_of(driver).paused


def test_firing_pushes_and_decides_in_one_change() -> None:
    driver = queue()
    driver.ok(hourly())
    driver.wait(3601)
    [job_id] = driver.ok(firing(driver, START + HOUR))
    job = driver.job(job_id)
    assert (job.kind, bytes(job.payload), job.run_at) == ("ping", b"1", None)
    row = row_of(driver)
    assert (row.decided_at, row.last_job, row.last_seq) == (START + HOUR, job_id, job.seq)


def test_a_due_time_fires_once_whoever_computed_it() -> None:
    driver = queue()
    driver.ok(hourly())
    fire = firing(driver, START + HOUR)
    assert len(driver.ok(fire)) == 1
    assert driver.ok(fire) == ()
    driver.wait(-7200)
    assert driver.ok(fire) == ()
    assert len(driver.state.jobs) == 1
    assert len(driver.ok(firing(driver, START + 2 * HOUR))) == 1


def test_what_was_computed_from_another_schedule_of_the_name_does_not_fire() -> None:
    driver = queue()
    driver.ok(hourly())
    fire = firing(driver, START + HOUR)
    changes: list[list[AnyOperation]] = [
        [hourly(every_s=60.0)],
        [RemoveSchedule(schedule="tick")],
        [hourly(every_s=0.0, cron="0 * * * *"), PauseSchedule(schedule="tick")],
    ]
    for change in changes:
        for operation in change:
            driver.ok(operation)
        assert driver.ok(fire) == ()
    assert not len(driver.state.jobs)


def test_a_paused_schedule_does_not_fire_and_forgets_what_was_due_when_it_is_resumed() -> None:
    driver = queue()
    driver.ok(hourly())
    driver.ok(PauseSchedule(schedule="tick"))
    driver.ok(PauseSchedule(schedule="tick"))
    assert driver.ok(firing(driver, START + HOUR)) == ()
    driver.wait(5400)
    driver.ok(ResumeSchedule(schedule="tick"))
    assert row_of(driver).decided_at == driver.now
    driver.wait(-9000)
    driver.ok(PauseSchedule(schedule="tick"))
    driver.ok(ResumeSchedule(schedule="tick"))
    assert row_of(driver).decided_at == START + timedelta(seconds=5400)


def test_a_schedule_that_runs_alone_leaves_a_run_out_while_the_last_is_open() -> None:
    driver = queue()
    driver.ok(hourly(alone=True))
    [first] = driver.ok(firing(driver, START + HOUR))
    assert driver.ok(firing(driver, START + 2 * HOUR)) == ()
    assert row_of(driver).decided_at == START + 2 * HOUR
    job = driver.claim_one("ping")
    assert driver.ok(firing(driver, START + 3 * HOUR)) == ()
    driver.ok(Complete(job=first, lease=lease_of(job)))
    [second] = driver.ok(firing(driver, START + 4 * HOUR))
    driver.ok(Cancel(job=second))
    assert len(driver.ok(firing(driver, START + 5 * HOUR))) == 1


def test_a_dead_run_is_not_open() -> None:
    driver = queue()
    driver.ok(hourly(alone=True))
    driver.ok(firing(driver, START + HOUR))
    driver.fail(driver.claim_one("ping"), retry=False)
    assert len(driver.ok(firing(driver, START + 2 * HOUR))) == 1


def test_a_full_queue_leaves_the_run_undecided() -> None:
    driver = queue(max_jobs=1)
    driver.ok(hourly())
    driver.push("other")
    fire = firing(driver, START + HOUR)
    driver.refused(fire, QueueFullError)
    assert row_of(driver).decided_at == START
    driver.complete(driver.claim_one("index"))
    assert len(driver.ok(fire)) == 1


def test_either_all_missed_runs_fit_or_none_is_pushed() -> None:
    driver = queue(max_jobs=2)
    driver.ok(hourly(missed="all"))
    runs = [START + count * HOUR for count in (1, 2, 3)]
    driver.refused(firing(driver, *runs), QueueFullError)
    assert len(driver.ok(firing(driver, *runs[:2]))) == 2


def test_skipped_runs_are_decided_without_a_job() -> None:
    driver = queue()
    driver.ok(hourly())
    assert driver.ok(firing(driver, until=START + 9 * HOUR)) == ()
    assert row_of(driver).decided_at == START + 9 * HOUR


def test_runs_have_ids_of_their_own_that_follow_from_the_due_time() -> None:
    runs = [START + count * HOUR for count in range(1, MOST_RUNS + 1)]
    found = []
    for _ in range(2):
        driver = queue()
        driver.ok(hourly(missed="all"))
        found.append(driver.ok(firing(driver, *runs)))
    assert found[0] == found[1]
    assert len(set(found[0])) == MOST_RUNS
    assert sorted(found[0]) == list(found[0])


def test_jitter_delays_each_run_by_another_time() -> None:
    driver = queue()
    driver.ok(hourly(missed="all", jitter_s=60))
    runs = [START + count * HOUR for count in range(1, 9)]
    ids = driver.ok(firing(driver, *runs))
    waits = [(driver.job(one).run_at or START) - due for one, due in zip(ids, runs, strict=True)]
    assert len(set(waits)) == 8
    assert all(timedelta(0) <= wait < timedelta(seconds=60) for wait in waits)


@pytest.mark.parametrize(
    "runs",
    [
        (START + 2 * HOUR, START + HOUR),
        (START + HOUR, START + HOUR),
        (START,),
        tuple(START + count * HOUR for count in range(1, MOST_RUNS + 2)),
    ],
)
def test_runs_that_do_not_follow_each_other_are_refused(runs: tuple[datetime, ...]) -> None:
    driver = queue()
    driver.ok(hourly())
    driver.refused(firing(driver, *runs), InvalidRequestError)


def test_a_run_now_is_pushed_once_under_the_id_of_its_request() -> None:
    driver = queue()
    driver.ok(hourly(alone=True))
    driver.ok(PauseSchedule(schedule="tick"))
    run = RunSchedule(schedule="tick", job="j1")
    for _ in range(2):
        assert driver.ok(run, "session", number=1) == ("j1",)
    assert len(driver.state.jobs) == 1
    row = row_of(driver)
    assert (row.last_job, row.decided_at, row.paused) == ("j1", START, True)


def test_the_number_of_schedules_is_limited() -> None:
    driver = queue(max_schedules=1)
    driver.ok(hourly())
    assert "max_schedules" in driver.refused(hourly("other"), RejectedError)
    driver.ok(hourly(missed="all"))
    assert driver.ok(RemoveSchedule(schedule="tick")) is True
    assert driver.ok(RemoveSchedule(schedule="tick")) is False
    driver.ok(hourly("other"))


def test_schedules_need_format_2_and_are_named_in_what_the_object_requires() -> None:
    old = Driver()
    assert "bucketq upgrade" in old.refused(hourly(), RejectedError)
    driver = queue()
    assert not driver.state.requires
    driver.ok(hourly())
    assert [*driver.state.requires] == ["schedules"]
    text = driver.refused(Configure(changes={"max_format": 1}), RejectedError)
    assert "remove them first" in text
    driver.ok(RemoveSchedule(schedule="tick"))
    driver.ok(Configure(changes={"max_format": 1}))


def test_a_schedule_is_read_as_it_was_written() -> None:
    driver = queue()
    driver.ok(hourly(cron="0 3 * * 1-5", timezone="Europe/Berlin", every_s=0.0, jitter_s=2.5))
    driver.ok(hourly("other", missed="skip", alone=True))
    before = list(driver.state.schedules)
    driver.reload()
    assert list(driver.state.schedules) == before
    assert driver.ok(hourly("other", missed="skip", alone=True)) == "unchanged"


@pytest.mark.parametrize(
    "operation",
    [
        hourly(""),
        hourly(every_s=0.0),
        hourly(every_s=0.5),
        hourly(every_s=float("nan")),
        hourly(every_s=-1.0),
        hourly(cron="0 3 * * *"),
        hourly(every_s=0.0, cron="0 3 * *"),
        hourly(every_s=0.0, cron="0 3  * * *"),
        hourly(every_s=0.0, cron="0 3 * * * *"),
        hourly(timezone="Europe/Berlin"),
        hourly(every_s=0.0, cron="0 3 * * *", timezone=""),
        hourly(missed="some"),
        hourly(jitter_s=-1.0),
        hourly(jitter_s=1e6),
        hourly(alone=1),
        SetSchedule(schedule="a", job=new_job("", "bad kind"), every_s=60.0),
        SetSchedule(schedule="a", job=new_job("", delay_s=1.0), every_s=60.0),
        SetSchedule(schedule="a", job=new_job("", run_at=START), every_s=60.0),
        SetSchedule(schedule="a", job=new_job("", key="k"), every_s=60.0),
        SetSchedule(schedule="a", job=new_job("", payload="x" * 20_000), every_s=60.0),
        RemoveSchedule(schedule=""),
        PauseSchedule(schedule=""),
        RunSchedule(schedule="", job="j"),
    ],
)
def test_what_makes_no_sense_is_refused(operation: AnyOperation) -> None:
    driver = queue()
    driver.refused(operation, InvalidRequestError)
    assert not driver.state.requires


@pytest.mark.parametrize(
    "operation",
    [
        PauseSchedule(schedule="x"),
        ResumeSchedule(schedule="x"),
        RunSchedule(schedule="x", job="j"),
    ],
)
def test_a_schedule_that_is_not_there_is_an_error_of_its_own(operation: AnyOperation) -> None:
    assert "`bucketq schedule ls`" in queue().refused(operation, ScheduleNotFoundError)


def test_a_retried_set_is_answered_again() -> None:
    driver = queue()
    assert driver.ok(hourly(), "session", number=1) == "created"
    driver.ok(RemoveSchedule(schedule="tick"))
    assert driver.ok(hourly(), "session", number=1) == "created"
    assert not driver.state.schedules


def test_the_job_of_a_schedule_has_the_options_of_a_push() -> None:
    driver = queue()
    job = NewJob(
        id="", kind="ping", payload=Raw(b"[1]"), priority=-3, max_attempts=2, tags={"a": "b"}
    )
    driver.ok(SetSchedule(schedule="tick", job=job, every_s=60.0))
    [pushed] = driver.ok(firing(driver, START + HOUR))
    found = driver.job(pushed)
    assert (found.priority, found.max_attempts, found.tags) == (-3, 2, {"a": "b"})

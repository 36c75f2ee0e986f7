"""What the audit table says of the actions of operators."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq.errors import InvalidRequestError, JobNotFoundError
from bucketq.model import operations as ops
from bucketq.model import schedules
from bucketq.model.audit_records import AuditRecord, ReadAudit
from bucketq.model.effects.access import right_of
from bucketq.model.history import ForgetHistory
from bucketq.model.numbered_batches import OpenConsumer, RemoveConsumer
from bucketq.model.transitions import apply
from bucketq.model.worker_records import DrainWorker
from tests.unit.model.driver import SECRET, START, Driver, new_job
from tests.unit.model.effects.test_access import grant
from tests.unit.model.oversight.test_announcements import announce


def actions(queue: Driver) -> list[AuditRecord]:
    return list(queue.ok(ReadAudit()))


def act(queue: Driver, operation: Any, by: str = "ada@host", number: int = 1) -> Any:
    """Apply an operation of an operator."""
    return apply(
        queue.state, ops.Request(operation, f"session of {by}", number), queue.now, by
    ).result()


def test_every_action_says_who_did_what_to_what() -> None:
    queue = Driver(max_format=2)
    queue.ok(ops.Push(jobs=(new_job("j1"), new_job("j2", "mail"))))
    queue.ok(announce("w1"))
    queue.ok(OpenConsumer(consumer="spark"))
    for number, operation in enumerate(
        (
            ops.Pause(),
            ops.Pause(kind="mail"),
            ops.Resume(),
            ops.Cancel(job="j1"),
            ops.SetPriority(job="j2", priority=-5),
            ops.Configure(changes={"lease_s": 60, "max_attempts": 3}),
            grant(1),
            ops.RevokeToken(id="00000001"),
            schedules.SetSchedule(schedule="nightly", job=new_job("x"), every_s=60),
            schedules.PauseSchedule(schedule="nightly"),
            schedules.ResumeSchedule(schedule="nightly"),
            schedules.RunSchedule(schedule="nightly", job="run-1"),
            schedules.RemoveSchedule(schedule="nightly"),
            RemoveConsumer(consumer="spark"),
            DrainWorker(worker="w1"),
        )
    ):
        act(queue, operation, number=number)
        queue.wait(1)
    rows = actions(queue)[1:]  # The first has set max_format.
    assert [(row.action, row.about, row.count) for row in rows] == [
        ("pause", (), 0),
        ("pause", ("kind mail",), 0),
        ("resume", (), 0),
        ("cancel", ("j1",), 1),
        ("setpriority", ("j2", "priority -5"), 1),
        ("configure", ("lease_s=60", "max_attempts=3"), 2),
        ("granttoken", ("00000001", "ci", "push"), 0),
        ("revoketoken", ("00000001",), 0),
        ("setschedule", ("nightly",), 0),
        ("pauseschedule", ("nightly",), 0),
        ("resumeschedule", ("nightly",), 0),
        ("runschedule", ("nightly",), 0),
        ("removeschedule", ("nightly",), 0),
        ("removeconsumer", ("spark",), 0),
        ("drain", ("w1",), 1),
    ]
    assert {row.by for row in rows} == {"ada@host"}
    assert rows[0].at == START


def test_work_on_jobs_leaves_no_trace_and_neither_does_what_changes_nothing() -> None:
    queue = Driver()
    queue.ok(ops.Push(jobs=(new_job("j1"),)))
    [job] = queue.ok(ops.Claim(worker="w", secret=SECRET))
    queue.ok(ops.Complete(job=job.id, lease=job.lease))
    queue.ok(ops.Resume())
    queue.ok(ops.Redrive())
    queue.ok(ops.Configure(changes={}))
    queue.refused(ops.Cancel(job="none"), JobNotFoundError)
    assert actions(queue) == []


def test_a_retried_action_is_noted_once() -> None:
    queue = Driver()
    act(queue, ops.Pause(), number=1)
    act(queue, ops.Pause(), number=1)
    assert [row.action for row in actions(queue)] == ["pause"]


def test_what_is_repeated_soon_is_one_row() -> None:
    queue = Driver()
    queue.ok(ops.Push(jobs=tuple(new_job(f"j{number}") for number in range(15))))
    for number in range(12):
        act(queue, ops.Cancel(job=f"j{number}"), number=number)
        queue.wait(1)
    [row] = actions(queue)
    assert (row.action, row.count, row.at) == ("cancel", 12, START)
    assert row.about == tuple(f"j{number}" for number in range(10))
    assert row.until is not None
    act(queue, ops.Cancel(job="j12"), by="token 00000001", number=20)
    act(queue, ops.Cancel(job="j13"), number=21)
    queue.wait(61)
    act(queue, ops.Cancel(job="j14"), number=22)
    assert [(row.by, row.count) for row in actions(queue)] == [
        ("ada@host", 12),
        ("token 00000001", 1),
        ("ada@host", 1),
        ("ada@host", 1),
    ]


def test_dead_jobs_that_are_redriven_and_purged_are_counted() -> None:
    queue = Driver(max_attempts=1)
    queue.ok(ops.Push(jobs=tuple(new_job(f"j{number}") for number in range(4))))
    for job in queue.ok(ops.Claim(worker="w", secret=SECRET, limit=4)):
        queue.ok(ops.Fail(job=job.id, lease=job.lease, error="x"))
    act(queue, ops.Redrive(kinds=("index",), limit=2), number=1)
    act(queue, ops.Purge(jobs=("j2",)), number=2)
    rows = [(row.action, row.about, row.count) for row in actions(queue)]
    assert rows[1:] == [("redrive", ("kind index",), 2), ("purge", ("j2",), 1)]


def test_the_oldest_actions_go_first() -> None:
    queue = Driver(max_audit=3)
    for kind in ("a", "b", "c", "d"):
        queue.ok(ops.Pause(kind=kind))
    assert [row.about for row in actions(queue)] == [("kind b",), ("kind c",), ("kind d",)]
    queue.ok(ops.Configure(changes={"max_audit": 1}))
    assert [row.action for row in actions(queue)] == ["configure"]
    queue.ok(ops.Pause())
    [latest] = queue.ok(ReadAudit(limit=1))
    assert latest.action == "pause"
    queue.refused(ReadAudit(limit=-1), InvalidRequestError)


def test_a_client_without_a_name_is_told_from_others_by_its_session() -> None:
    queue = Driver()
    act(queue, ops.Pause(), by="", number=1)
    queue.ok(ops.Resume())
    who = [row.by for row in actions(queue)]
    assert who[0].startswith("client ")
    assert "session" not in who[0]
    assert who[1] == "unknown"


def test_only_a_history_that_an_operator_deletes_is_noted() -> None:
    queue = Driver(max_format=2, history_retention_s=60)
    queue.state.version = 9
    queue.state.history.rise(1)
    queue.ok(ForgetHistory(before=3))
    assert [row.action for row in actions(queue)] == ["configure"]
    queue.ok(ForgetHistory(before=5, is_asked=True))
    assert actions(queue)[-1].about == ("before version 5",)


def test_long_names_are_cut() -> None:
    queue = Driver()
    queue.ok(ops.Configure(changes={"backoff": {"base_s": 1.0, "factor": 2.0, "max_s": 9.0}}))
    queue.ok(ops.Configure(changes=dict.fromkeys(("max_tags", "max_errors"), 5)))
    assert all(len(name) <= 200 for row in actions(queue) for name in row.about)


@pytest.mark.parametrize("limit", [0, 1])
def test_reading_the_table_needs_the_right_to_do_everything(limit: int) -> None:
    assert right_of(ReadAudit(limit=limit)) == "admin"

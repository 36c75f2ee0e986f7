"""What `bucketq tail` makes of the changes of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

import bucketq
from bucketq import Change, Queue
from bucketq.cli.live import kinds_of_jobs
from bucketq.cli.live.job_events import JobEvent, events_of
from bucketq.cli.live.kinds_of_jobs import KindsOfJobs
from bucketq.queue.change import ChangeRequest, JobChange

NOON = datetime(2026, 2, 15, 12, tzinfo=UTC)


@pytest.fixture
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[Queue[Any]]:
    """A queue with a history."""
    name = request.node.name.replace("_", "-")
    async with bucketq.connect(f"memory://{name}", mode="embedded", worker="w") as queue:
        await queue.configure(history_retention_s=3600)
        yield queue


async def events(queue: Queue[Any]) -> list[JobEvent]:
    return [event async for change in queue.changes(follow=False) for event in events_of(change)]


async def names(queue: Queue[Any], job: str) -> list[str]:
    return [event.event for event in await events(queue) if event.job == job]


async def test_the_life_of_a_job(queue: Queue[Any]) -> None:
    await queue.push("email", 1, id="a", max_attempts=2)
    (job,) = await queue.claim()
    await queue.fail(job, "no route", delay_s=0)
    (job,) = await queue.claim()
    await queue.fail(job, "no route to host")
    await queue.redrive(["a"])
    (job,) = await queue.claim()
    await queue.snooze(job, 0)
    (job,) = await queue.claim()
    await queue.release(job)
    (job,) = await queue.claim()
    await queue.complete(job, {"secret": 1})
    assert await names(queue, "a") == [
        *("pushed", "claimed", "failed", "claimed", "dead", "redriven", "claimed", "snoozed"),
        *("claimed", "released", "claimed", "completed"),
    ]
    found = {event.event: event for event in (await events(queue))[:5]}
    assert (found["pushed"].kind, found["claimed"].attempt, found["claimed"].worker) == (
        *("email", 2, "w"),
    )
    assert (found["dead"].error, found["dead"].attempt) == ("no route to host", 2)


async def test_cancelled_and_purged_jobs(queue: Queue[Any]) -> None:
    for name in ("waits", "runs", "dies"):
        await queue.push(name, 1, id=name)
    await queue.cancel("waits")
    (job,) = await queue.claim("runs")
    await queue.cancel("runs")
    await queue.release(job)
    (job,) = await queue.claim("dies")
    await queue.fail(job, "x", retry=False)
    await queue.purge()
    assert await names(queue, "waits") == ["pushed", "cancelled"]
    assert await names(queue, "runs") == ["pushed", "claimed", "cancelling", "cancelled"]
    assert await names(queue, "dies") == ["pushed", "claimed", "dead", "purged"]


async def test_jobs_that_follow_from_others(queue: Queue[Any]) -> None:
    await queue.push("first", 1, id="first")
    await queue.push("other", 1, id="other")
    await queue.push("then", 1, id="then", after=["first", "other"])
    for name in ("first", "other"):
        (job,) = await queue.claim(name)
        await queue.complete(job, push=[bucketq.JobSpec(kind="more", payload=1, id=f"more-{name}")])
    assert await names(queue, "then") == ["pushed", "ready"]
    assert await names(queue, "more-first") == ["pushed"]
    assert await names(queue, "first") == ["pushed", "claimed", "completed"]


async def test_pauses_and_settings_are_events_of_the_queue(queue: Queue[Any]) -> None:
    await queue.pause("email")
    await queue.resume("email")
    await queue.configure(lease_s=60)
    found = await events(queue)
    assert [event.event for event in found] == ["paused", "resumed", "configured"]
    assert {event.job for event in found} == {""}
    assert [event.paused for event in found] == [("email",), (), None]


def test_several_requests_of_one_version_are_events_in_their_order() -> None:
    change = Change(
        incarnation="i",
        version=7,
        commit="c",
        at=NOON,
        epoch=1,
        requests=(
            ChangeRequest("push", "c", ("new",)),
            ChangeRequest("fail", "c", ("old",)),
            ChangeRequest("heartbeat", "c", ("beat",)),
            ChangeRequest("claim", "c", ("old", "new")),
            ChangeRequest("archived", "", ("gone",)),
            ChangeRequest("expire", "", ("lost",)),
            ChangeRequest("release", "c", ("back",)),
            ChangeRequest("cancel", "c", ("back",)),
        ),
        jobs=(
            JobChange("new", 9, {"pushed_at": "x", "kind": "k", "status": "running", "attempt": 1}),
            JobChange("old", 1, {"attempt": 2, "errors": [{"attempt": 1, "error": "e"}]}),
            JobChange("beat", 2, {"heartbeat_at": "x"}),
            JobChange("lost", 3, {"status": "queued", "errors": [{"attempt": 1, "error": "e"}]}),
            JobChange("back", 5, {"status": "done", "outcome": "cancelled"}),
        ),
        gone=(("gone", 4),),
    )
    assert [(event.event, event.job) for event in events_of(change)] == [
        *(("pushed", "new"), ("failed", "old"), ("claimed", "old"), ("claimed", "new")),
        *(("lost", "lost"), ("released", "back"), ("cancelled", "back")),
    ]


async def test_kinds_are_read_once_and_those_of_archived_jobs_stay_unknown(
    queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.push("email", 1, id="a")
    known = KindsOfJobs(queue)

    def event(job: str, kind: str = "") -> JobEvent:
        return JobEvent(version=1, at=NOON, event="claimed", job=job, kind=kind)

    found = [event("a"), event("gone"), event("seen"), event("seen", "index")]
    await known.fill_in(found)
    assert [each.kind for each in found] == ["email", "", "index", "index"]
    again = [event("a")]
    monkeypatch.setattr(queue, "get", None)
    await known.fill_in(again)
    assert again[0].kind == "email"
    monkeypatch.setattr(kinds_of_jobs, "_MOST", 1)
    await known.fill_in([event("b", "k")])
    assert known._kinds == {"b": "k"}, "it is bounded"

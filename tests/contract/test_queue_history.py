"""What every queue promises to those who look at its past."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketq import Change, HistoryGapError, InvalidRequestError, Queue, RejectedError
from tests.contract.places import Place

WEEK_S = 7 * 86400


async def collect(queue: Queue[Any], since: int | None = None) -> list[Change]:
    return [change async for change in queue.changes(since, follow=False)]


async def work(queue: Queue[Any]) -> str:
    """Switch history on, push a job, claim it and complete it; return its id."""
    await queue.configure(history_retention_s=WEEK_S)
    job_id = await queue.push("mail", {"to": "ada"})
    (job,) = await queue.claim(worker="w")
    await queue.complete(job, "sent")
    return job_id


async def copied(queue: Queue[Any]) -> None:
    """Wait until there is a copy, which is made beside the commits."""
    for _ in range(400):
        try:
            await queue.version_at(datetime.now(UTC) + timedelta(days=1))
        except HistoryGapError:
            await queue.pause()
            await queue.resume()
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError("no copy was made")


async def test_changes_show_what_requests_did(queue: Queue[Any]) -> None:
    job_id = await work(queue)
    changes = await collect(queue)
    versions = [change.version for change in changes]
    assert versions == [*range(versions[0], versions[0] + len(versions))]
    requests = [request for change in changes for request in change.requests]
    assert [request.verb for request in requests] == ["push", "claim", "complete"]
    assert {request.jobs for request in requests} == {(job_id,)}
    steps = [job for change in changes for job in change.jobs]
    assert [job.is_new for job in steps] == [True, False, False]
    assert steps[0].fields["payload"] == {"to": "ada"}
    assert steps[1].fields["worker"] == "w"
    assert steps[2].fields["result"] == "sent"
    assert all("lease" not in job.fields for job in steps)
    # Versions that only move rows may have come since.
    assert (await collect(queue, versions[1]))[: len(changes) - 2] == changes[2:]


async def test_changes_wait_for_the_next_version(queue: Queue[Any]) -> None:
    await work(queue)
    newest = (await collect(queue))[-1]
    feed = queue.changes(newest.version, incarnation=newest.incarnation)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    job_id = await queue.push("mail", 2)
    seen = await asyncio.wait_for(waiting, 30)
    while not seen.jobs:  # A version that only moved rows.
        seen = await asyncio.wait_for(anext(feed), 30)
    assert seen.jobs[0].id == job_id
    await feed.aclose()  # type: ignore[attr-defined]


async def test_an_earlier_version_is_shown_as_it_was(queue: Queue[Any]) -> None:
    await work(queue)
    await copied(queue)
    job_id = await queue.push("index", [1])
    version = next(c.version for c in await collect(queue) if c.jobs and c.jobs[0].id == job_id)
    await queue.cancel(job_id)
    past = await queue.snapshot(version=version)
    (job,) = [job for job in past.jobs if job.id == job_id]
    assert (past.version, job.status, bytes(job.payload)) == (version, "queued", b"[1]")
    assert past.settings == await queue.settings()
    with pytest.raises(InvalidRequestError, match="not both"):
        await queue.snapshot(version=version, at=datetime.now(UTC))
    with pytest.raises(InvalidRequestError, match="time zone"):
        await queue.snapshot(at=datetime.now())  # noqa: DTZ005 - that is the point


async def test_what_was_forgotten_is_a_gap(queue: Queue[Any]) -> None:
    await work(queue)
    changes = await collect(queue)
    first = await queue.forget_history(changes[2].version)
    assert first == changes[2].version
    assert (await collect(queue))[0].version == first
    with pytest.raises(HistoryGapError, match=f"begins with version {first}"):
        await collect(queue, changes[0].version)
    feed = queue.changes(changes[2].version, incarnation="01J")
    with pytest.raises(HistoryGapError, match="replaced"):
        await anext(feed)


async def test_a_queue_without_history_has_no_changes(queue: Queue[Any]) -> None:
    await queue.push("mail", 1)
    with pytest.raises(RejectedError, match="history_retention_s"):
        await collect(queue)
    with pytest.raises(RejectedError, match="history_retention_s"):
        await queue.snapshot(version=1)


def test_the_blocking_feed_is_a_plain_iterator(place: Place) -> None:
    with place.connect_sync() as queue:
        queue.configure(history_retention_s=WEEK_S)
        queue.push("mail", 1)
        changes = list(queue.changes(follow=False))
        assert [request.verb for change in changes for request in change.requests] == ["push"]
        feed = queue.changes(changes[-1].version)
        queue.push("mail", 2)
        assert next(each for each in feed if each.jobs).jobs[0].fields["payload"] == 2

"""What every queue promises to those who operate it, and to those who only look."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq import (
    Backoff,
    InvalidRequestError,
    Job,
    JobId,
    JobNotFoundError,
    LeaseLostError,
    Pulse,
    Queue,
    Settings,
)
from bucketq.codec.decode import decode
from bucketq.model.settings import DEEP
from tests.contract.places import Place


async def dead_jobs(queue: Queue[Any], *payloads: object, kind: str = "mail") -> list[JobId]:
    """Push jobs and let each die."""
    ids = [await queue.push(kind, payload) for payload in payloads]
    for job in await queue.claim(kind, limit=len(ids)):
        await queue.fail(job, "beyond repair", retry=False)
    return ids


async def claimed(queue: Queue[Any]) -> Job[Any]:
    await queue.push("mail", 1)
    (job,) = await queue.claim()
    return job


async def test_a_waiting_job_is_cancelled_at_once(queue: Queue[Any]) -> None:
    job_id = await queue.push("mail", 1)
    assert await queue.cancel(job_id) == "cancelled"
    assert await queue.cancel(job_id) == "cancelled"
    job = await queue.get(job_id)
    assert (job.status, job.outcome) == ("done", "cancelled")
    assert await queue.claim() == []


async def test_the_worker_of_a_cancelled_job_is_asked_to_stop(queue: Queue[Any]) -> None:
    job = await claimed(queue)
    assert await queue.cancel(job.id) == "requested"
    assert await queue.heartbeat(job) == [Pulse(job.id, held=True, cancel_requested=True)]
    assert await queue.fail(job, "stopped as asked") == "done"
    assert (await queue.get(job.id)).outcome == "cancelled"


async def test_a_worker_may_finish_a_job_that_was_to_be_cancelled(queue: Queue[Any]) -> None:
    job = await claimed(queue)
    await queue.cancel(job.id)
    await queue.complete(job)
    assert await queue.cancel(job.id) == "finished"
    assert (await queue.get(job.id)).outcome == "completed"


async def test_dead_jobs_are_given_a_new_life_in_their_old_place(queue: Queue[Any]) -> None:
    ids = await dead_jobs(queue, "a", "b")
    await queue.push("mail", "c")
    assert await queue.redrive() == 2
    jobs = await queue.claim(limit=9)
    assert [job.payload for job in jobs] == ["a", "b", "c"]
    assert [(job.attempt, job.record.failures) for job in jobs] == [(2, 0), (2, 0), (1, 0)]
    assert [job.id for job in jobs[:2]] == ids


async def test_a_redrive_chooses_by_id_kind_or_number(queue: Queue[Any]) -> None:
    a, b, c = await dead_jobs(queue, "a", "b", "c")
    (d,) = await dead_jobs(queue, "d", kind="index")
    assert await queue.redrive(b) == 1
    assert await queue.redrive(kinds="index") == 1
    assert await queue.redrive(limit=1) == 1
    assert [job.id for job in await queue.claim(limit=9)] == [a, b, d]
    assert await queue.redrive([c]) == 1
    assert await queue.redrive() == 0
    with pytest.raises(InvalidRequestError, match="not dead"):
        await queue.redrive([c])
    with pytest.raises(JobNotFoundError):
        await queue.redrive("never-pushed")


async def test_purged_jobs_are_done_for_good(queue: Queue[Any]) -> None:
    a, _, c = await dead_jobs(queue, "a", "b", "c")
    await dead_jobs(queue, "d", kind="index")
    assert await queue.purge(older_than_s=3600) == 0
    assert await queue.purge([a]) == 1
    assert await queue.purge(kinds=["index"]) == 1
    assert await queue.purge() == 2
    assert await queue.redrive() == 0
    job = await queue.get(c)
    assert (job.status, job.outcome) == ("done", "dead")


async def test_a_paused_queue_hands_out_nothing_and_lets_the_rest_go_on(
    place: Place, queue: Queue[Any]
) -> None:
    job = await claimed(queue)
    await queue.push("mail", 2)
    await queue.pause()
    await queue.pause()
    async with place.connect() as other:
        assert await other.claim() == []
        assert (await other.stats()).paused
    await queue.complete(job)
    await queue.push("mail", 3)
    await queue.resume()
    assert [job.payload for job in await queue.claim(limit=9)] == [2, 3]


async def test_a_paused_kind_leaves_the_others_alone(queue: Queue[Any]) -> None:
    await queue.push("mail", 1)
    await queue.push("index", 2)
    await queue.pause("mail")
    assert (await queue.stats()).paused_kinds == ("mail",)
    assert [job.payload for job in await queue.claim(limit=9)] == [2]
    assert await queue.claim("mail") == []
    await queue.resume("mail")
    assert [job.payload for job in await queue.claim(limit=9)] == [1]


async def test_resuming_without_a_kind_undoes_every_pause(place: Place, queue: Queue[Any]) -> None:
    await queue.pause()
    await queue.pause("mail")
    await queue.resume()
    stats = await queue.stats()
    assert (stats.paused, stats.paused_kinds) == (False, ())
    before = await place.stored()
    await queue.resume()
    await queue.resume("never-paused")
    assert await place.stored() == before


async def test_a_resumed_queue_wakes_waiting_claims(queue: Queue[Any]) -> None:
    await queue.push("mail", 1)
    await queue.pause()
    assert await queue.claim(wait_s=0.02) == []
    await queue.resume()
    assert len(await queue.claim(wait_s=30)) == 1


async def test_settings_are_read_and_changed_for_all_clients(
    place: Place, queue: Queue[Any]
) -> None:
    before = await place.stored()
    assert await queue.settings() == DEEP
    assert await place.stored() == before
    changed = await queue.configure(lease_s=60, backoff=Backoff(base_s=2))
    assert (changed.lease_s, changed.backoff) == (60.0, Backoff(base_s=2))
    assert changed.heartbeat_s == Settings().heartbeat_s
    async with place.connect() as other:
        assert await other.settings() == changed
        assert (await other.snapshot()).settings == changed


async def test_a_job_that_is_not_there_is_not_found(queue: Queue[Any]) -> None:
    with pytest.raises(JobNotFoundError, match="'nobody'"):
        await queue.get("nobody")
    with pytest.raises(JobNotFoundError, match="'nobody'"):
        await queue.cancel("nobody")


async def test_jobs_are_listed_page_by_page(queue: Queue[Any]) -> None:
    ids = [await queue.push("mail", number) for number in range(5)]
    page = await queue.jobs(limit=2)
    seen = [job.id for job in page.jobs]
    while page.next_after is not None:
        page = await queue.jobs(limit=2, after=page.next_after)
        assert len(page.jobs) <= 2
        seen += [job.id for job in page.jobs]
    assert seen == ids
    assert (await queue.jobs(limit=5)).next_after is None


async def test_jobs_are_listed_by_status_kind_and_tags(queue: Queue[Any]) -> None:
    red = await queue.push("mail", 1, tags={"color": "red", "size": "s"})
    blue = await queue.push("index", 2, tags={"color": "blue", "size": "s"})
    plain = await queue.push("index", 3)
    (claimed,) = await queue.claim("mail")

    async def found(**filters: Any) -> list[str]:
        return [job.id for job in (await queue.jobs(**filters)).jobs]

    assert await found(statuses="running") == [claimed.id] == [red]
    assert await found(statuses=["queued", "running"]) == [red, blue, plain]
    assert await found(kinds="index") == [blue, plain]
    assert await found(tags={"size": "s"}) == [red, blue]
    assert await found(tags={"size": "s", "color": "blue"}) == [blue]
    assert await found(tags={"size": "xl"}) == []
    assert await found(statuses="dead") == []


async def test_the_numbers_add_up(place: Place, queue: Queue[Any]) -> None:
    assert (await queue.stats()).counts == {}
    await dead_jobs(queue, 1)
    await queue.push("mail", 2, key="k")
    await queue.push("index", 3)
    done, _ = await queue.claim(limit=2)
    await queue.complete(done)
    await queue.push("index", 4)
    stats = await queue.stats()
    assert stats.counts == {
        "index": {"queued": 1, "running": 1},
        "mail": {"dead": 1, "done": 1},
    }
    assert [stats.total(status) for status in ("queued", "running", "done", "dead")] == [1] * 4
    assert stats.keys == 1
    assert stats.oldest_queued_s is not None
    assert 0 <= stats.oldest_queued_s < 60
    stored = decode((await place.stored()).body, place.url).state
    while stats.version != stored.version:  # Rows moved to segments meanwhile.
        assert stats.version < stored.version
        stats = await queue.stats()
        stored = decode((await place.stored()).body, place.url).state
    assert stats.broker == stored.broker


async def test_samples_are_returned_on_request_if_there_is_a_broker(queue: Queue[Any]) -> None:
    await queue.push("mail", 1)
    assert (await queue.stats()).samples is None
    found = await queue.stats(samples=True)
    assert (found.samples is not None) == (found.commit_stats is not None)
    for sample in found.samples or ():
        assert 0 <= sample.version <= found.version
        assert (sample.queued, sample.pushed) in {(0, 0), (1, 1)}


async def test_a_snapshot_holds_every_job_at_the_version_in_the_storage(
    place: Place, queue: Queue[Any]
) -> None:
    ids = [await queue.push("mail", number) for number in range(3)]
    await queue.claim()
    snapshot = await queue.snapshot()
    while snapshot.version != (await queue.stats()).version:  # Rows moved to segments meanwhile.
        snapshot = await queue.snapshot()
    assert [job.id for job in snapshot.jobs] == ids
    assert [job.status for job in snapshot.jobs] == ["running", "queued", "queued"]
    assert b'"version":%d,' % snapshot.version in (await place.stored()).body


async def test_reading_writes_nothing(place: Place, queue: Queue[Any]) -> None:
    job_id = await queue.push("mail", 1)
    before = await place.stored()
    await queue.get(job_id)
    await queue.jobs()
    await queue.stats()
    await queue.snapshot()
    await queue.settings()
    with pytest.raises(JobNotFoundError):
        await queue.get("nobody")
    assert await place.stored() == before


async def test_what_one_connection_did_the_next_question_of_another_shows(
    place: Place, queue: Queue[Any]
) -> None:
    async with place.connect() as other:
        for number in range(3):
            job_id = await queue.push("mail", number)
            assert (await other.get(job_id)).payload == number
            assert (await other.stats()).total("queued") == 1
            assert await other.cancel(job_id) == "cancelled"
            assert (await queue.get(job_id)).outcome == "cancelled"


async def test_finished_jobs_leave_for_the_archive_and_the_others_stay(
    place: Place, queue: Queue[Any]
) -> None:
    await dead_jobs(queue, "dead")
    done = await claimed(queue)
    await queue.complete(done, "result")
    cancelled = await queue.push("mail", "cancelled")
    await queue.cancel(cancelled)
    waiting = await queue.push("mail", "waiting")
    assert await queue.flush_archive() == 2
    assert await queue.flush_archive() == 0
    for gone in (done.id, cancelled):
        with pytest.raises(JobNotFoundError):
            await queue.get(gone)
    assert (await queue.get(waiting)).status == "queued"
    async with place.connect() as other:
        assert (await other.stats()).counts == {"mail": {"dead": 1, "queued": 1}}


async def test_completing_an_archived_job_raises_an_error_that_says_so(
    queue: Queue[Any],
) -> None:
    job = await claimed(queue)
    await queue.complete(job)
    await queue.flush_archive()
    with pytest.raises(LeaseLostError, match="archived"):
        await queue.complete(job)

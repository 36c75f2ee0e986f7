"""What every queue promises to those who push."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketq import (
    Backoff,
    InvalidRequestError,
    JobId,
    JobSpec,
    KeyConflictError,
    PayloadError,
    PayloadTooLargeError,
    Queue,
    QueueFullError,
    QueueNotFoundError,
)
from tests.contract.places import Place


def specs(*payloads: object, kind: str = "index", **options: Any) -> list[JobSpec[Any]]:
    return [JobSpec(kind=kind, payload=payload, **options) for payload in payloads]


async def test_a_pushed_job_can_be_read_with_all_that_it_was_given(queue: Queue[Any]) -> None:
    job_id = await queue.push(
        "mail",
        {"to": "ada"},
        priority=-3,
        max_attempts=7,
        backoff=Backoff(base_s=2, factor=3, max_s=4),
        key="welcome-ada",
        tags={"team": "growth"},
    )
    job = await queue.get(job_id)
    assert (job.id, job.kind, job.status, job.payload) == (job_id, "mail", "queued", {"to": "ada"})
    assert (job.priority, job.key, job.tags) == (-3, "welcome-ada", {"team": "growth"})
    assert (job.attempt, job.run_at, job.outcome) == (0, None, None)
    assert (job.record.max_attempts, job.record.backoff) == (7, Backoff(2, 3, 4))
    assert abs(job.pushed_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_a_push_is_in_the_storage_when_it_returns(place: Place, queue: Queue[Any]) -> None:
    job_id = await queue.push("mail", {"to": "ada"})
    assert job_id.encode() in (await place.stored()).body


async def test_a_queue_that_was_closed_and_opened_again_has_lost_nothing(place: Place) -> None:
    async with place.connect() as queue:
        ids = await queue.push_many(specs(1, 2))
        (claimed,) = await queue.claim()
        before = await queue.snapshot()
    async with place.connect() as queue:
        after = await queue.snapshot()
        assert after.jobs == before.jobs
        assert after.incarnation == before.incarnation
        assert after.settings == before.settings
        assert after.version >= before.version  # A broker that comes or goes writes that down.
        await queue.complete(claimed)
        assert [job.id for job in await queue.claim(limit=5)] == ids[1:]


async def test_a_missing_queue_is_created_only_if_allowed(
    place: Place,
) -> None:
    with pytest.raises(QueueNotFoundError, match=r"no queue at|not served at"):
        async with place.connect(create=False):
            pass
    async with place.connect() as queue:
        job_id = await queue.push("mail", 1)
    async with place.connect(create=False) as queue:
        assert (await queue.get(job_id)).payload == 1


@pytest.mark.shallow
async def test_many_jobs_are_pushed_in_order_and_in_one_commit(queue: Queue[Any]) -> None:
    version = (await queue.stats()).version
    ids = await queue.push_many(specs(*range(20)))
    assert len(set(ids)) == 20
    assert (await queue.stats()).version == version + 1
    assert [job.id for job in (await queue.jobs()).jobs] == ids
    assert [job.payload for job in await queue.claim(limit=20)] == list(range(20))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (JobSpec(kind="", payload=1), InvalidRequestError),
        (JobSpec(kind="index", payload=float("nan")), PayloadError),
        (JobSpec(kind="index", payload="x" * (65 * 1024 * 1024)), PayloadTooLargeError),
        (JobSpec(kind="index", payload=1, id="first"), InvalidRequestError),
        (JobSpec(kind="index", payload=1, key="taken"), KeyConflictError),
    ],
    ids=["no kind", "not json", "too large", "id twice", "key of another job"],
)
async def test_one_bad_job_among_many_keeps_all_of_them_out(
    place: Place, queue: Queue[Any], bad: JobSpec[Any], error: type[Exception]
) -> None:
    await queue.push("index", "another", key="taken")
    before = await place.stored()
    with pytest.raises(error):
        await queue.push_many([JobSpec(kind="index", payload=0, id="first"), bad])
    assert await place.stored() == before
    assert (await queue.stats()).total("queued") == 1
    await queue.push("index", "next")


async def test_pushing_no_jobs_writes_nothing(place: Place, queue: Queue[Any]) -> None:
    before = await place.stored()
    assert await queue.push_many([]) == []
    assert await queue.push_many(iter(())) == []
    assert await place.stored() == before


async def test_jobs_may_come_from_any_iterable(queue: Queue[Any]) -> None:
    ids = await queue.push_many(spec for spec in specs("a", "b"))
    assert [(await queue.get(job_id)).payload for job_id in ids] == ["a", "b"]


async def test_pushes_of_many_callers_at_once_are_all_there(queue: Queue[Any]) -> None:
    ids = await asyncio.gather(*(queue.push("index", number) for number in range(30)))
    jobs = {job.id: job.payload for job in (await queue.jobs(limit=1000)).jobs}
    assert jobs == dict(zip(ids, range(30), strict=True))


@pytest.mark.parametrize("blanks", [0, 4000])
async def test_pushes_of_several_jobs_by_many_callers_at_once_are_all_there(
    queue: Queue[Any], blanks: int
) -> None:
    pushes = [
        [f"{caller}-{n}{' ' * blanks}" for n in range(2 + caller % 5)] for caller in range(30)
    ]
    answers = await asyncio.gather(*(queue.push_many(specs(*some)) for some in pushes))
    stored = {job.id: job.payload for job in (await queue.jobs(limit=1000)).jobs}
    assert [[stored.pop(job_id) for job_id in ids] for ids in answers] == pushes
    assert not stored


async def test_one_of_several_pushes_at_once_is_rejected_alone(queue: Queue[Any]) -> None:
    await queue.push("index", "first", key="taken")
    answers = await asyncio.gather(
        queue.push_many(specs(1, 2)),
        queue.push_many(specs(3, 4, key="taken")[:1] + specs(5)),
        queue.push_many(specs(6, 7, 8)),
        return_exceptions=True,
    )
    assert [type(each) for each in answers] == [list, KeyConflictError, list]
    stored = {job.payload for job in (await queue.jobs()).jobs}
    assert stored == {"first", 1, 2, 6, 7, 8}


async def test_what_the_caller_changes_after_a_push_does_not_change_the_job(
    place: Place, queue: Queue[Any]
) -> None:
    tags, payload = {"number": "1"}, {"list": [1]}
    first = await queue.push("index", payload, tags=tags)
    tags["number"] = "2"
    payload["list"].append(2)
    second = await queue.push("index", payload, tags=tags)
    tags["number"] = "3"
    async with place.connect() as other:
        assert (await other.get(first)).tags == {"number": "1"}
        assert (await other.get(first)).payload == {"list": [1]}
        assert (await other.get(second)).tags == {"number": "2"}


async def test_a_key_stands_for_one_job_as_long_as_its_content_is_the_same(
    place: Place, queue: Queue[Any]
) -> None:
    first = await queue.push("mail", {"to": "ada"}, key="k", priority=2, tags={"a": "b"})
    before = await place.stored()
    assert await queue.push("mail", {"to": "ada"}, key="k", priority=2, tags={"a": "b"}) == first
    assert await place.stored() == before
    assert (await queue.stats()).total("queued") == 1


async def test_a_key_stands_for_its_job_also_after_the_job_is_done(queue: Queue[Any]) -> None:
    first = await queue.push("mail", 1, key="k")
    (job,) = await queue.claim()
    await queue.complete(job)
    assert await queue.push("mail", 1, key="k") == first
    assert await queue.claim() == []
    assert (await queue.get(first)).status == "done"


@pytest.mark.parametrize(
    "other",
    [
        {"payload": 2},
        {"kind": "letter"},
        {"priority": 1},
        {"tags": {"a": "b"}},
        {"max_attempts": 9},
        {"delay_s": 60},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_key_with_other_content_is_refused(
    queue: Queue[Any], other: dict[str, Any]
) -> None:
    first = await queue.push("mail", 1, key="k")
    with pytest.raises(KeyConflictError, match=f"'k' belongs to job {first}"):
        await queue.push_many([JobSpec(**{"kind": "mail", "payload": 1, "key": "k", **other})])
    assert (await queue.stats()).total("queued") == 1


async def test_known_and_new_keys_go_in_one_push(queue: Queue[Any]) -> None:
    first = await queue.push("mail", 1, key="one")
    known, new = await queue.push_many(
        [
            JobSpec(kind="mail", payload=1, key="one"),
            JobSpec(kind="mail", payload=2, key="two"),
        ]
    )
    assert known == first
    assert new != first
    assert (await queue.stats()).total("queued") == 2


async def test_a_key_is_forgotten_after_its_retention(queue: Queue[Any]) -> None:
    await queue.configure(key_retention_s=0.2)
    first = await queue.push("mail", 1, key="k")
    await asyncio.sleep(0.25)
    second = await queue.push("mail", 2, key="k")
    assert second != first
    assert (await queue.stats()).keys == 1


async def test_a_job_pushed_again_under_its_own_id_is_one_job(queue: Queue[Any]) -> None:
    assert await queue.push("mail", 1, id="mine") == "mine"
    assert await queue.push("mail", 1, id="mine") == "mine"
    with pytest.raises(KeyConflictError, match="'mine' belongs to a job with other content"):
        await queue.push("mail", 2, id="mine")
    assert (await queue.stats()).total("queued") == 1


async def test_a_full_queue_refuses_pushes_and_nothing_else(queue: Queue[Any]) -> None:
    await queue.configure(max_jobs=2)
    await queue.push_many(specs(1, 2))
    with pytest.raises(QueueFullError, match="max_jobs"):
        await queue.push("index", 3)
    first, second = await queue.claim(limit=2)
    assert [pulse.held for pulse in await queue.heartbeat([first, second])] == [True, True]
    await queue.complete(first)
    await queue.release(second)
    await queue.configure(max_jobs=3)
    await queue.push("index", 3)


async def test_a_payload_over_the_limit_is_refused_by_the_setting_that_holds_it(
    queue: Queue[Any],
) -> None:
    await queue.configure(max_payload_bytes=100)
    with pytest.raises(PayloadTooLargeError, match="max_payload_bytes"):
        await queue.push("index", "x" * 100)
    await queue.push("index", "x" * 98)
    await queue.configure(max_batch_bytes=150)
    with pytest.raises(PayloadTooLargeError, match="max_batch_bytes"):
        await queue.push_many(specs("x" * 98, "x" * 98))


async def test_an_id_says_whether_its_job_was_there_already(queue: Queue[Any]) -> None:
    first = await queue.push("mail", "ada", key="welcome-ada")
    again = await queue.push("mail", "ada", key="welcome-ada")
    assert (first, first.duplicate, again.duplicate) == (again, False, True)
    assert not (await queue.push("mail", "own", id="own")).duplicate
    assert (await queue.push("mail", "own", id="own")).duplicate
    several = await queue.push_many([*specs("ada", kind="mail", key="welcome-ada"), *specs("new")])
    assert [(type(each).duplicate, each == first) for each in several] == [
        (True, True),
        (False, False),
    ]


async def test_an_id_can_be_passed_to_every_verb_that_takes_one(queue: Queue[Any]) -> None:
    job_id = await queue.push("mail", "ada")
    assert isinstance(job_id, JobId)
    assert (await queue.get(job_id)).id == job_id
    child = await queue.push("mail", {"parent": job_id}, key=job_id, tags={"parent": str(job_id)})
    assert (await queue.get(child)).payload == {"parent": str(job_id)}
    assert await queue.cancel(job_id) == "cancelled"
    (job,) = await queue.claim()
    await queue.fail(job, "no", retry=False)
    assert await queue.redrive(child) == 1
    again = await queue.push("mail", "ada", id=JobId("own"))
    assert again == "own"

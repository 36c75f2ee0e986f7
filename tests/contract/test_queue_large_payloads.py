"""What every queue promises about payloads and results that are too large for their jobs."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from bucketq import (
    JobSpec,
    LeaseLostError,
    PayloadError,
    PayloadLostError,
    PayloadTooLargeError,
    Queue,
    RejectedError,
)
from bucketq.archive.archive_layout import Layout
from bucketq.model.base import NewJob
from bucketq.model.side_objects import object_name
from bucketq.queue.large.side_writer import Placed, SideWriter
from bucketq.store.url import open_store
from tests.contract.places import Place
from tests.environ import SPILL_BYTES

LARGE = "x" * 100_000
HUGE = bytes(range(256)) * 13_000
"""More than three parts."""


@dataclass
class Film:
    name: str
    frames: list[int]


async def side_keys(place: Place) -> list[str]:
    """The keys of all parts and markers of a queue."""
    location = open_store(place.url)
    root = Layout.of(location.store.url, location.key).root.removesuffix("archive/")
    try:
        return [info.key async for info in location.store.list(f"{root}payloads/")]
    finally:
        if not location.is_lent:
            await location.store.close()


async def delete_side_objects(place: Place) -> None:
    location = open_store(place.url)
    try:
        for key in await side_keys(place):
            await location.store.delete(key)
    finally:
        if not location.is_lent:
            await location.store.close()


@pytest.mark.parametrize("payload", [LARGE, HUGE, {"rows": list(range(50_000))}, b"x" * 70_000])
async def test_a_large_payload_comes_out_as_it_went_in(queue: Queue[Any], payload: Any) -> None:
    job_id = await queue.push("film", payload)
    (job,) = await queue.claim()
    assert (job.id, job.payload) == (job_id, payload)
    assert (await queue.stats()).bytes < 4000
    await queue.release(job)
    (again,) = await queue.claim()
    assert again.payload == payload
    await queue.complete(again)


async def test_a_large_result_is_waited_for(queue: Queue[Any]) -> None:
    ids = await queue.push_many([JobSpec(kind="film", payload=n) for n in range(3)])
    jobs = await queue.claim(limit=3)
    await queue.complete(jobs[0], LARGE)
    assert await queue.complete_many([(jobs[1], HUGE), (jobs[2], "small")]) == [True, True]
    assert [await queue.wait(job_id) for job_id in ids] == [LARGE, HUGE, "small"]
    done = await queue.get(ids[1])
    with pytest.raises(PayloadError, match="open_result"):
        done.result  # noqa: B018 - it raises
    assert b"".join([chunk async for chunk in queue.open_result(done)]) == HUGE
    await queue.flush_archive()
    assert await queue.wait(ids[0]) == LARGE


async def test_large_and_small_ones_are_pushed_together(queue: Queue[Any]) -> None:
    payloads = ["small", LARGE, 5, HUGE]
    await queue.push_many([JobSpec(kind="film", payload=each) for each in payloads])
    assert [job.payload for job in await queue.claim(limit=10)] == payloads


async def test_a_typed_payload_may_be_large(place: Place) -> None:
    film = Film("a", list(range(30_000)))
    async with place.connect(payload_type=Film) as queue:
        await queue.push("film", film)
        (job,) = await queue.claim()
        assert job.payload == film


async def test_a_file_is_a_payload(queue: Queue[Any], tmp_path: Path) -> None:
    path = tmp_path / "film.mov"
    path.write_bytes(HUGE * 6)
    await queue.push("film", path)
    with path.open("rb") as file:
        file.seek(100)
        await queue.push("film", file)
    await queue.push("film", io.BytesIO(b"small"))
    first, second, third = await queue.claim(limit=3)
    with pytest.raises(PayloadError, match="open_payload"):
        first.payload  # noqa: B018 - it raises
    assert b"".join([chunk async for chunk in first.open_payload()]) == HUGE * 6
    assert b"".join([chunk async for chunk in queue.open_payload(second)]) == (HUGE * 6)[100:]
    assert third.payload == b"small"
    with pytest.raises(PayloadError, match="cannot be read"):
        await queue.push("film", tmp_path / "missing")


async def test_a_push_of_a_large_payload_is_idempotent(queue: Queue[Any]) -> None:
    first = await queue.push("film", LARGE, key="k")
    second = await queue.push("film", LARGE, key="k")
    assert (second, second.duplicate) == (first, True)
    with pytest.raises(RejectedError, match="other content"):
        await queue.push("film", LARGE + "y", key="k")
    own = await queue.push("film", LARGE, id="own")
    assert (await queue.push("film", LARGE, id="own")) == own
    assert (await queue.stats()).total("queued") == 2


async def test_a_large_payload_replaces_another(queue: Queue[Any]) -> None:
    first = await queue.push("film", LARGE, unique="u")
    second = await queue.push("film", HUGE, unique="u", replace="payload")
    assert first == second
    (job,) = await queue.claim()
    assert job.payload == HUGE


async def test_what_is_larger_than_the_settings_allow_is_refused(queue: Queue[Any]) -> None:
    await queue.configure(max_payload_bytes=90_000, max_result_bytes=90_000)
    with pytest.raises(PayloadTooLargeError, match="max_payload_bytes"):
        await queue.push("film", LARGE)
    await queue.push("film", 1)
    (job,) = await queue.claim()
    with pytest.raises(PayloadTooLargeError, match="max_result_bytes"):
        await queue.complete(job, LARGE)
    await queue.complete(job)


async def test_the_setting_says_what_is_large(place: Place) -> None:
    async with place.connect() as queue:
        await queue.configure(inline_bytes=2000)
        await queue.push("film", "x" * 3000)
        parts = [key for key in await side_keys(place) if "pending" not in key]
        assert [key.rpartition(".")[2] for key in parts] == ["00000"]
        (job,) = await queue.claim()
        assert job.payload == "x" * 3000


async def test_a_payload_that_is_lost_affects_its_own_job_only(place: Place) -> None:
    async with place.connect() as queue:
        await queue.push("film", LARGE)
        await delete_side_objects(place)
        await queue.push("film", HUGE)
        lost, kept = await queue.claim(limit=2)
        with pytest.raises(PayloadLostError, match=r"lost.*missing"):
            lost.payload  # noqa: B018 - it raises
        assert kept.payload == HUGE
        assert await queue.fail(lost, "lost") == "queued"
        await queue.complete(kept)


async def test_nothing_is_left_but_what_jobs_name(place: Place) -> None:
    async with place.connect() as queue:
        await queue.push("film", HUGE)
        (job,) = await queue.claim()
        await queue.complete(job, LARGE)
        keys = await side_keys(place)
        markers = [key for key in keys if "pending" in key]
        assert len(keys) - len(markers) == 4 + 1
        # A job that has moved to a segment at once is looked for by the next sweep.
        assert not markers or SPILL_BYTES


async def test_jobs_that_a_completion_pushes_may_be_large(place: Place) -> None:
    async with place.connect() as queue:
        await queue.push_many([JobSpec(kind="first", payload=n) for n in range(3)])
        one, *others = await queue.claim("first", limit=3)
        specs = [JobSpec(kind="next", payload=each) for each in (HUGE, "small", LARGE)]
        ids = await queue.complete(one, LARGE, push=specs)
        await queue.complete(one, LARGE, push=specs)  # Once more, as if the answer was lost.
        jobs = await queue.claim("next", limit=5)
        assert [(job.id, job.payload) for job in jobs] == [
            *zip(ids, (HUGE, "small", LARGE), strict=True)
        ]
        assert await queue.wait(one.id) == LARGE
        new = NewJob(id="own", kind="next", payload=Raw(msgspec.json.encode(LARGE)))
        assert await queue.complete_many([(others[0], HUGE, (new,)), others[1]]) == [True, True]
        (job,) = await queue.claim("next", limit=5)
        assert (job.id, job.payload) == ("own", LARGE)
        assert (await queue.stats()).bytes < 8000


async def test_a_lost_completion_pushes_nothing_that_is_large(queue: Queue[Any]) -> None:
    await queue.push("first", 0)
    (job,) = await queue.claim("first")
    await queue.release(job)
    with pytest.raises(LeaseLostError):
        await queue.complete(job, push=[JobSpec(kind="next", payload=LARGE)])
    assert await queue.claim("next") == []


async def test_large_follow_ups_that_came_too_late_are_written_again(
    queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More commits were made while they were written than their names allow."""
    await queue.push("first", 0)
    (job,) = await queue.claim("first")
    real, calls = SideWriter._place, list[int]()

    async def place_late(writer: SideWriter, placed: Placed, tries: int) -> None:
        calls.append(tries)
        await real(writer, placed, tries)
        if not tries:
            incarnation = placed.object.partition("/")[0]
            placed.object = object_name(incarnation, 1, placed.content.digest, "0" * 16)

    monkeypatch.setattr(SideWriter, "_place", place_late)
    await queue.complete(job, push=[JobSpec(kind="next", payload=LARGE)])
    (pushed,) = await queue.claim("next")
    assert (pushed.payload, calls) == (LARGE, [0, 1])


async def test_a_claim_leaves_large_payloads_where_they_are_if_asked(queue: Queue[Any]) -> None:
    await queue.push("film", LARGE)
    (job,) = await queue.claim(fetch=False)
    with pytest.raises(PayloadError, match="open_payload"):
        job.payload  # noqa: B018 - it raises
    text = b"".join([chunk async for chunk in job.open_payload()])
    assert msgspec.json.decode(text) == LARGE


async def test_numbered_batches_have_no_large_payloads(queue: Queue[Any]) -> None:
    spec = JobSpec(kind="film", payload=HUGE)
    with pytest.raises(PayloadTooLargeError, match=r"only `push`, `push_many` and `complete` put"):
        await queue.publish("writer", 1, [spec])


async def test_a_schedule_has_no_large_payload(queue: Queue[Any]) -> None:
    with pytest.raises(RejectedError, match=r"too large|at most"):
        await queue.schedule("nightly", "film", HUGE, every_s=60)

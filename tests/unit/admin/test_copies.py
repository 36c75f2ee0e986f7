"""Copies of deep queues: one version, with every row in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import admin
from bucketq.codec.decode import decode
from bucketq.codec.inline_copy import RowSpool
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.errors import CorruptStateError, QueueNotFoundError
from bucketq.testing import StoreLink
from tests.unit.admin.deep_queues import KEY, Deep, deep


@deep
async def test_a_copy_of_a_deep_queue_holds_every_row(world: Deep) -> None:
    ids = await world.fill()
    async with world.open() as queue:
        cancelled = [job for job in ids[20:25] if await queue.cancel(job) == "cancelled"]
    head = await world.head()
    assert len(head.cold.rows) > 2
    copy = await admin.backup(world.object())
    state = decode(copy.body, "copy").state
    assert copy.body.startswith(b'{"format":1,')
    assert (state.version, state.incarnation) == (head.version, head.incarnation)
    assert state.settings == head.settings
    assert (state.requires, len(state.cold.rows)) == ({}, 0)
    assert copy.summary.jobs == admin.summarize(state).jobs == admin.summarize(head).jobs
    assert copy.size_bytes == len(copy.body) == copy.summary.size_bytes
    assert len(state.jobs) == 100
    assert {state.jobs.by_id[job].status for job in cancelled} == {"done"}


@deep
async def test_rows_that_have_left_their_segment_are_not_in_a_copy_twice(world: Deep) -> None:
    ids = await world.fill()
    async with world.open() as queue:
        claimed = {job.id for job in await queue.claim(limit=30)}
    state = decode((await admin.backup(world.object())).body, "copy").state
    assert [job.id for job in state.jobs] == ids
    assert claimed < set(state.running)
    assert [key.id for key in state.keys] == [f"key-{number}" for number in range(100)]
    assert [key.job for key in state.keys] == ids


@deep
async def test_the_copy_of_a_queue_without_segments_is_the_object(world: Deep) -> None:
    await world.fill(4)
    head, body = await world.head(), await world.body()
    assert (await admin.backup(world.object())).body == body
    with RowSpool() as spool:
        copy = spool.finish(head, KEY)
    assert b"".join(copy.chunks()) == body
    assert copy.size_bytes == len(body)


class Interrupted:
    """A store that does something else before the first read of a segment."""

    def __init__(self, link: StoreLink, act: Any) -> None:
        self._link, self._act = link, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        act, self._act = self._act, None
        if act:
            await act()
        return await self._link.get_range(key, offset, length)


async def work_off(world: Deep) -> None:
    """Finish most jobs, and delete the segments as a sweep does in the end."""
    async with world.open() as queue:
        for _ in range(3):
            jobs = await queue.claim(limit=100)
            await queue.complete_many(jobs)
    named = (await world.head()).cold.rows.segments
    for key in await world.segments():
        if key.rpartition("/")[2].partition(".")[0] not in named:
            await world.reader.delete(key)


@deep
async def test_a_copy_begins_again_if_the_queue_has_moved_on(world: Deep) -> None:
    await world.fill()
    before = await world.head()
    link: Any = Interrupted(world.store.connect("admin"), lambda: work_off(world))
    copy = await admin.backup(world.object(link=link))
    assert copy.summary.version > before.version
    assert copy.summary.jobs == admin.summarize(await world.head()).jobs


@deep
async def test_a_copy_of_a_queue_that_was_deleted_or_restored_meanwhile(world: Deep) -> None:
    await world.fill()
    shallow = admin.QueueObject(world.store.connect("x"), "other.json", "other", world.clock)
    await admin.create(shallow)
    new = await admin.backup(shallow)

    async def restore() -> None:
        await admin.restore(world.object(), new.body, overwrite=True)
        for key in await world.segments():
            await world.reader.delete(key)

    link: Any = Interrupted(world.store.connect("admin"), restore)
    assert (await admin.backup(world.object(link=link))).summary.jobs == {}
    await admin.delete(world.object(), await world.object().read())
    await world.fill()

    async def delete() -> None:
        await admin.delete(world.object(), await world.object().read())
        for key in await world.segments():
            await world.reader.delete(key)

    link = Interrupted(world.store.connect("admin"), delete)
    with pytest.raises(QueueNotFoundError):
        await admin.backup(world.object(link=link))


@deep
async def test_a_queue_with_a_damaged_or_missing_segment_is_not_copied(world: Deep) -> None:
    await world.fill()
    key = (await world.segments())[0]
    body = (await world.reader.get(key)).body
    await world.reader.put(key, body.replace(b'"kind":"', b'"kind"; ', 1))
    with pytest.raises(CorruptStateError, match="do not fit its index"):
        await admin.backup(world.object())
    await world.reader.delete(key)
    with pytest.raises(CorruptStateError, match="missing"):
        await admin.backup(world.object())


@deep
async def test_a_row_in_two_places_is_not_copied(world: Deep) -> None:
    await world.fill(4)
    state = await world.head()
    with RowSpool() as spool:
        spool.add("jobs", [(2, b"{}")])
        with pytest.raises(CorruptStateError, match="number 2 of its jobs"):
            spool.finish(state, KEY)


@deep
async def test_a_copy_of_a_deep_queue_can_be_worked_off(world: Deep) -> None:
    await world.fill()
    copy = await admin.backup(world.object())
    await admin.restore(world.object("other.json"), copy.body)
    first, second = await world.contents(), await world.contents("other.json")
    assert [job[:4] for job in first] == [job[:4] for job in second]
    async with world.open(DirectCommitter) as one, world.open(DirectCommitter, "other.json") as two:
        expected = [job.id for job in await one.claim(limit=500)]
        found = [job.id for job in await two.claim(limit=500)]
        assert [job for job in found if job in expected] == expected
        assert len(found) == len(expected) + 2  # Those that were running.


@deep
async def test_rows_that_a_vector_says_have_left_are_not_copied(world: Deep) -> None:
    left = await world.fill_with_vectors()
    state = decode((await admin.backup(world.object())).body, "copy").state
    assert [job.id for job in state.jobs if job.status != "done"] == left


@deep
async def test_a_copy_begins_again_if_a_vector_was_replaced(world: Deep) -> None:
    left = await world.fill_with_vectors()
    before = {each.record.vector for each in (await world.head()).cold.rows.segments.values()}

    async def cancel_more() -> None:
        async with world.open() as queue:
            for job in left[1::2]:
                await queue.cancel(job)
            await asyncio.sleep(20)
        await admin.sweep(world.object())
        after = {each.record.vector for each in (await world.head()).cold.rows.segments.values()}
        assert not before & after - {""}

    link: Any = Interrupted(world.store.connect("admin"), cancel_more)
    state = decode((await admin.backup(world.object(link=link))).body, "copy").state
    live = [job.id for job in state.jobs if job.status != "done"]
    assert live == [job for job in left if job not in left[1::2]]

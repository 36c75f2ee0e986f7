"""Deleting segments when an operator asks for it."""

from __future__ import annotations

import asyncio

import pytest

from bucketq import admin
from bucketq.codec.tombstone import Tombstone
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.errors import CorruptStateError, InvalidRequestError, QueueNotFoundError
from tests.unit.admin.deep_queues import KEY, Deep, deep
from tests.unit.admin.test_restore_deep import named


def orphan(world_incarnation: str, until: int) -> str:
    return f"queue/segments/{world_incarnation}/{until:020d}-0123456789abcdef.jsonl"


@deep
async def test_a_sweep_deletes_what_no_version_can_name(world: Deep) -> None:
    await world.fill()
    head, contents = await world.head(), await world.contents()
    old, new = orphan(head.incarnation, head.version), orphan(head.incarnation, head.version + 1)
    foreign = orphan("01AAAAAAAAAAAAAAAAAAAAAAAA", 1)
    for key in (old, new, foreign):
        await world.reader.put(key, b"left over")
    others = set(await world.segments()) - {old}
    swept = await admin.sweep(world.object())
    assert swept == admin.Swept(segments=1, history=0, former_segments=0, forgotten=())
    assert set(await world.segments()) == others
    assert await world.contents() == contents
    assert (await world.head()).version == head.version


@deep
async def test_a_sweep_clears_former_incarnations_and_forgets_them_the_next_time(
    world: Deep,
) -> None:
    await world.fill()
    before = await world.head()
    copy = await admin.backup(world.object())
    await admin.restore(world.object(), copy.body, overwrite=True)
    head, contents = await world.head(), await world.contents()
    swept = await admin.sweep(world.object())
    assert (swept.segments, swept.forgotten) == (0, ())
    assert swept.former_segments >= len(before.cold.rows)
    assert set(await world.segments()) == named(head)
    assert list((await world.head()).former) == [before.incarnation]
    swept = await admin.sweep(world.object())
    assert swept == admin.Swept(0, 0, 0, (before.incarnation,))
    after = await world.head()
    assert (after.former, after.version) == ({}, head.version + 1)
    assert await world.contents() == contents


@deep
async def test_a_sweep_needs_a_queue_that_can_be_read(world: Deep) -> None:
    with pytest.raises(QueueNotFoundError):
        await admin.sweep(world.object())
    await world.fill()
    keys = await world.keys()
    await world.reader.put(KEY, (await world.body())[:-20])
    with pytest.raises(CorruptStateError):
        await admin.sweep(world.object())
    assert await world.keys() == keys


@deep
async def test_only_another_incarnation_is_cleared_on_a_persons_word(world: Deep) -> None:
    await world.fill()
    head, keys = await world.head(), await world.keys()
    never = orphan("01AAAAAAAAAAAAAAAAAAAAAAAA", head.version + 1)
    await world.reader.put(never, b"of a restore that was killed")
    for act in (admin.count_segments, admin.clear_incarnation):
        with pytest.raises(InvalidRequestError, match="present incarnation"):
            await act(world.object(), head.incarnation)
        assert await act(world.object(), "01AAAAAAAAAAAAAAAAAAAAAAAA") == 1
    assert await world.keys() == keys
    with pytest.raises(InvalidRequestError, match="not an incarnation"):
        await admin.clear_incarnation(world.object(), "../archive")
    await world.reader.put(KEY, b"nothing that can be read")
    with pytest.raises(InvalidRequestError, match="damaged"):
        await admin.clear_incarnation(world.object(), head.incarnation)
    stone = Tombstone(deleted_at=world.clock.now(), commit="00", incarnation=head.incarnation)
    await world.reader.put(KEY, stone.encode())
    assert await admin.clear_incarnation(world.object(), head.incarnation) == len(keys) - 1


@deep
async def test_what_a_killed_restore_left_can_be_cleared(world: Deep) -> None:
    await world.fill()
    copy = await admin.backup(world.object())
    contents, before = await world.contents(), await world.head()
    target = world.object()

    async def send_nothing(key: str, body: bytes, etag: str) -> str:
        del key, body, etag
        await asyncio.sleep(1e9)
        raise AssertionError

    target.store.replace = send_nothing  # type: ignore[method-assign]
    process = world.loop.spawn("restore", lambda: admin.restore(target, copy.body, overwrite=True))
    await asyncio.sleep(5)
    process.kill()
    incarnations = {key.split("/")[2] for key in await world.segments()}
    [never] = incarnations - {before.incarnation}
    swept = await admin.sweep(world.object())
    assert {key.split("/")[2] for key in await world.segments()} == incarnations
    assert swept.former_segments == 0
    assert await admin.clear_incarnation(world.object(), never) > 0
    assert await world.contents() == contents


@deep
async def test_vectors_are_swept_and_deleted_like_segments(world: Deep) -> None:
    left = await world.fill_with_vectors()
    async with world.open(DirectCommitter) as queue:
        for number in range(5):
            await queue.push("z", number)
    await admin.sweep(world.object())
    head = await world.head()
    found = {key.rpartition("/")[2].removesuffix(".jsonl") for key in await world.segments()}
    assert found == head.cold.rows.names()
    assert any(name.endswith(".gone") for name in found)
    contents = await world.contents()
    assert [job[0] for job in contents if job[4] != "done"][: len(left)] == left
    await admin.delete(world.object(), await world.object().read())
    assert await world.segments() == []

"""Deleting deep queues, with kills and freezes between any two steps."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from bucketq import admin
from bucketq.archive.archive_layout import Layout
from bucketq.clock import new_id
from bucketq.codec.tombstone import Tombstone, read_tombstone
from bucketq.errors import InvalidRequestError, QueueNotFoundError, StoreRefusedError
from bucketq.testing import VirtualLoop, run
from tests.unit.admin.deep_queues import KEY, OTHER, Deep, deep
from tests.unit.admin.test_restore_deep import named

ARCHIVE = Layout.of("sim://", KEY)


async def archive_some(world: Deep, count: int = 4) -> list[str]:
    """Write archive files, and two versions of the log of a compacted archive."""
    bodies = [b"%d %s" % (n, new_id(world.clock).encode()) for n in range(count)]
    keys = [ARCHIVE.file_key(world.clock.now(), n, body) for n, body in enumerate(bodies)]
    keys += [f"{ARCHIVE.compacted}_delta_log/{n:020d}.json" for n in range(2)]
    for key in keys:
        await world.reader.put(key, b"{}")
    return keys


@deep
async def test_a_deep_queue_is_deleted_with_its_segments(world: Deep) -> None:
    await world.fill()
    await world.fill(100, OTHER)
    segments = await world.segments()
    notes = f"{segments[0].rpartition('/')[0]}/notes.txt"
    foreign = f"queue/segments/01AAAAAAAAAAAAAAAAAAAAAAAA/{segments[0].rpartition('/')[2]}"
    for key in (notes, foreign):
        await world.reader.put(key, b"")
    others = await world.keys("other")
    deleted = await admin.delete(world.object(), await world.object().read())
    assert deleted.segments == len(segments)
    assert await world.keys() == sorted([*others, notes, foreign])


@deep
async def test_delete_reaches_former_incarnations(world: Deep) -> None:
    await world.fill()
    copy = await admin.backup(world.object())
    for _ in range(2):
        await admin.restore(world.object(), copy.body, overwrite=True)
    assert len({key.split("/")[2] for key in await world.segments()}) == 3
    await admin.delete(world.object(), await world.object().read())
    assert await world.segments() == []


@deep
async def test_create_on_a_tombstone_takes_its_incarnations_over(world: Deep) -> None:
    await world.fill()
    before = await world.head()
    stone = Tombstone(
        deleted_at=world.clock.now(),
        commit="00",
        version=before.version,
        incarnation=before.incarnation,
        former=("01AAAAAAAAAAAAAAAAAAAAAAAA",),
    )
    await world.reader.put(KEY, stone.encode())
    await admin.create(world.object())
    head = await world.head()
    assert list(head.former) == ["01AAAAAAAAAAAAAAAAAAAAAAAA", before.incarnation]
    assert await world.segments()
    async with world.open():
        await asyncio.sleep(1300)
        assert await world.segments() == []
        assert list((await world.head()).former) == [before.incarnation]
        await asyncio.sleep(7300)
        assert (await world.head()).former == {}


@deep
async def test_restore_on_a_tombstone_takes_over_and_finishes_its_archive(world: Deep) -> None:
    await world.fill()
    copy, before = await admin.backup(world.object()), await world.head()
    await archive_some(world)
    stone = Tombstone(
        deleted_at=world.clock.now(),
        commit="00",
        version=before.version + 50,
        incarnation=before.incarnation,
        archive=True,
    )
    await world.reader.put(KEY, stone.encode())
    restored = await admin.restore(world.object(), copy.body)
    head = await world.head()
    assert (restored.saved, head.version) == (None, before.version + 51)
    assert list(head.former) == [before.incarnation]
    assert await world.keys("queue/archive/") == []
    assert len(await world.contents()) == 100


@deep
async def test_former_incarnations_are_swept_and_then_forgotten(world: Deep) -> None:
    await world.fill()
    old = await world.head()
    copy = await admin.backup(world.object())
    await admin.restore(world.object(), copy.body, overwrite=True)
    contents = await world.contents()
    late = f"queue/segments/{old.incarnation}/{99:020d}-0123456789abcdef.jsonl"
    async with world.open():
        await asyncio.sleep(1300)
        assert {key.split("/")[2] for key in await world.segments()} == {
            (await world.head()).incarnation
        }
        await world.reader.put(late, b"by a process that was frozen")
        await asyncio.sleep(7300)
        assert late not in await world.segments()
        await asyncio.sleep(7300)
        assert (await world.head()).former == {}
        assert await world.contents() == contents


@deep
async def test_a_deletion_of_an_archive_that_was_begun_is_finished_by_create(world: Deep) -> None:
    await world.fill(4)
    await archive_some(world)
    stone = Tombstone(deleted_at=world.clock.now(), commit="00", archive=True)
    await world.reader.put(KEY, stone.encode())
    await admin.create(world.object())
    assert await world.keys("queue/archive/") == []
    await archive_some(world)
    await world.reader.put(KEY, Tombstone(deleted_at=world.clock.now(), commit="00").encode())
    await admin.create(world.object())
    assert len(await world.keys("queue/archive/")) == 6


@deep
async def test_an_interrupted_deletion_is_finished_as_it_was_begun(world: Deep) -> None:
    await world.fill(4)
    await archive_some(world)
    stone = Tombstone(deleted_at=world.clock.now(), commit="00", archive=True)
    await world.reader.put(KEY, stone.encode())
    deleted = await admin.delete(world.object(), await world.object().read())
    assert (deleted.archive_files, await world.keys()) == (6, [])
    await archive_some(world)
    await world.reader.put(KEY, Tombstone(deleted_at=world.clock.now(), commit="00").encode())
    deleted = await admin.delete(world.object(), await world.object().read(), archive=True)
    assert (deleted.archive_files, await world.keys()) == (6, [])


@deep
async def test_a_damaged_object_is_deleted_with_the_segments_of_its_incarnation(
    world: Deep,
) -> None:
    await world.fill()
    await world.reader.put(KEY, (await world.body())[:-100])
    deleted = await admin.delete(world.object(), await world.object().read())
    assert deleted.segments > 2
    assert await world.keys() == []


@deep
async def test_a_name_that_is_not_an_incarnation_is_never_deleted(world: Deep) -> None:
    await world.fill(100, OTHER)
    others = await world.keys()
    path = others[0].rpartition("/")[0].removeprefix("other/segments/")
    stone = Tombstone(
        deleted_at=world.clock.now(), commit="00", incarnation=f"../../other/segments/{path}"
    )
    await world.reader.put(KEY, stone.encode())
    with pytest.raises(InvalidRequestError, match="nothing was deleted"):
        await admin.delete(world.object(), await world.object().read())
    assert await world.keys("other") == others


@deep
async def test_a_queue_without_access_to_segments_can_be_deleted(world: Deep) -> None:
    for count, is_deep in ((4, False), (100, True)):
        await world.fill(count)
        target = world.object()

        def refuse(prefix: str) -> None:
            raise StoreRefusedError(f"{prefix} may not be listed")

        target.store.list = refuse  # type: ignore[assignment,method-assign]
        if is_deep:
            with pytest.raises(StoreRefusedError):
                await admin.delete(target, await target.read())
            with pytest.raises(QueueNotFoundError):
                await world.contents()
        else:
            await admin.delete(target, await target.read())
            assert KEY not in await world.keys()


def test_a_deletion_can_be_killed_at_any_step_and_finished() -> None:
    outcomes = set()
    for steps in range(1, 120, 5):
        outcomes.add(run(partial(killed, steps)))
    assert outcomes - {"untouched"} == {"tombstone", "nothing"}


async def killed(steps: int, loop: VirtualLoop) -> str:
    """Kill a deletion; it can be finished, or a queue be created in its place."""
    world = Deep(loop)
    await world.fill()
    await archive_some(world)
    seen = await world.object().read()
    process = world.loop.spawn("delete", lambda: admin.delete(world.object(), seen, archive=True))
    process.kill_after(steps)
    await process.wait()
    await asyncio.sleep(60)
    if not await world.keys():
        return "nothing"
    found = await world.object().read()
    if found.body == seen.body:
        return "untouched"  # Its first write was lost with it.
    assert read_tombstone(found.body) is not None
    if steps % 4 == 1:
        await admin.delete(world.object(), found)
        assert await world.keys() == []
    else:
        await admin.create(world.object())
        assert await world.keys("queue/archive/") == []
        async with world.open():
            await asyncio.sleep(8000)
        assert await world.keys() == [KEY]
    return "tombstone"


def test_a_deleter_that_was_frozen_never_touches_a_later_queue() -> None:
    outcomes = set()
    for steps in range(1, 120, 3):
        outcomes.add(run(partial(frozen, steps)))
    assert outcomes == {"before", "after"}


async def frozen(steps: int, loop: VirtualLoop) -> str:
    """Freeze a deleter; another one finishes, and a queue is made and filled; then thaw it."""
    world = Deep(loop)
    await world.fill()
    await archive_some(world)
    seen = await world.object().read()
    process = world.loop.spawn("delete", lambda: admin.delete(world.object(), seen, archive=True))
    process.freeze_after(steps)
    await asyncio.sleep(60)
    if not process.frozen:
        assert await world.keys() == []
        return "after"
    found = await world.object().find()
    if found is not None:
        assert read_tombstone(found.body) is not None
        if steps % 2:
            await admin.delete(world.object(), found, archive=True)
        else:
            await admin.create(world.object())
    await world.fill()
    archived, contents, head = await archive_some(world), await world.contents(), await world.head()
    process.thaw()
    await process.wait()
    await asyncio.sleep(60)
    assert named(await world.head()) <= set(await world.segments())
    assert (await world.head()).incarnation == head.incarnation
    assert await world.contents() == contents
    assert set(archived) <= set(await world.keys("queue/archive/"))
    return "before"

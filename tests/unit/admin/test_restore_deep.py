"""Restoring and replacing deep queues, with kills between any two steps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest

from bucketq import admin
from bucketq.codec.decode import decode
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.errors import (
    CorruptStateError,
    InvalidRequestError,
    KeyConflictError,
    RejectedError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.model.state import State
from bucketq.queue.push_options import JobSpec
from bucketq.testing import Faults, VirtualLoop, run
from tests.unit.admin.deep_queues import KEY, OTHER, SPILL_BYTES, Deep, deep

A = TypeVar("A")


def named(state: State) -> set[str]:
    """The keys of the segments that a head names."""
    folder = f"queue/segments/{state.incarnation}/"
    return {f"{folder}{name}.jsonl" for name in state.cold.rows.segments}


@deep
async def test_a_large_copy_is_restored_into_segments(world: Deep) -> None:
    await world.fill(200)
    before, contents = await world.head(), await world.contents()
    copy = await admin.backup(world.object())
    restored = await admin.restore(world.object(), copy.body, overwrite=True)
    head = await world.head()
    assert restored.segments == len(head.cold.rows) >= 2
    assert len(head.jobs) * 150 < SPILL_BYTES
    assert named(head) <= set(await world.segments())
    assert {record.until for record in (s.record for s in head.cold.rows.segments.values())} == {
        head.version
    }
    assert list(head.former) == [before.incarnation]
    queued = [(*job[:4], "queued") for job in contents]
    assert await world.contents() == queued
    async with world.open() as queue:
        jobs = await queue.claim(limit=1000)
        assert all(job.attempt > 1000 for job in jobs)
        with pytest.raises(KeyConflictError, match=contents[7][0]):
            await queue.push("a", 0, key="key-7")


@deep
async def test_the_keys_of_a_copy_go_to_segments_too(world: Deep) -> None:
    async with world.open(DirectCommitter) as queue:
        await queue.configure(max_format=1)
        specs = [JobSpec(kind="k", payload=n, key=f"key-{n}") for n in range(1500)]
        ids = await queue.push_many(specs)
        await queue.configure(max_format=2)
        copy = await admin.backup(world.object())
    await admin.restore(world.object(), copy.body, overwrite=True)
    head = await world.head()
    assert (len(head.keys), head.cold.rows.count("keys")) == (500, 1000)
    async with world.open(DirectCommitter) as queue:
        assert await queue.push("k", 3, key="key-3") == ids[3]
        assert await queue.push("k", 1499, key="key-1499") == ids[1499]


@deep
async def test_a_copy_of_a_shallow_or_old_queue_is_restored_into_the_object(world: Deep) -> None:
    await world.fill(4)
    copy = await admin.backup(world.object())
    restored = await admin.restore(world.object(OTHER), copy.body)
    assert (restored.segments, (await world.head(OTHER)).requires) == (0, {})
    await world.fill(100, "old.json", max_format=1)
    copy = await admin.backup(world.object("old.json"))
    restored = await admin.restore(world.object("older.json"), copy.body)
    head = await world.head("older.json")
    assert (restored.segments, head.former, len(head.jobs)) == (0, {}, 100)
    assert (await world.body("older.json")).startswith(b'{"format":1,')


@deep
async def test_the_replaced_queue_is_kept_with_all_its_rows(world: Deep) -> None:
    await world.fill()
    contents = await world.contents()
    await admin.create(world.object(OTHER))
    empty = await admin.backup(world.object(OTHER))
    restored = await admin.restore(world.object(), empty.body, overwrite=True)
    assert restored.saved
    assert restored.saved.startswith("queue.json.replaced-")
    for key in await world.segments():
        await world.reader.delete(key)
    again = await admin.restore(world.object(), await world.body(restored.saved), overwrite=True)
    assert again.summary.jobs == {"queued": 100}
    assert [job[:4] for job in await world.contents()] == [job[:4] for job in contents]


@deep
async def test_attempts_never_repeat_if_the_replaced_job_is_in_a_segment(world: Deep) -> None:
    ids = await world.fill()
    copy = await admin.backup(world.object())
    await admin.restore(world.object(), copy.body, overwrite=True)
    async with world.open(DirectCommitter) as queue:
        [job] = await queue.claim("b")
        await queue.fail(job, "no", delay_s=500)
        await asyncio.sleep(1)
        for number in range(40):
            await queue.push("c", "x" * number)
        head = await world.head()
        assert job.id not in head.jobs
    await admin.restore(world.object(), copy.body, overwrite=True)
    async with world.open(DirectCommitter) as queue:
        again = await queue.claim("b", limit=100)
        assert job.id in ids
        assert min(each.attempt for each in again) > job.attempt


@deep
async def test_a_bare_object_of_a_deep_queue_is_not_a_copy(world: Deep) -> None:
    await world.fill()
    with pytest.raises(InvalidRequestError, match=r"the segments that it names.*bucketq backup"):
        await admin.restore(world.object(OTHER), await world.body())
    assert OTHER not in await world.keys()


@deep
async def test_a_queue_with_a_lost_segment_can_be_replaced_and_keeps_the_others(
    world: Deep,
) -> None:
    await world.fill()
    await admin.create(world.object(OTHER))
    empty = await admin.backup(world.object(OTHER))
    before = await world.head()
    lost, *others = await world.segments()
    await world.reader.delete(lost)
    restored = await admin.restore(world.object(), empty.body, overwrite=True)
    assert restored.saved
    assert ".broken-" in restored.saved
    assert restored.kept_incarnation == before.incarnation
    assert (await world.head()).former == {}
    assert decode(await world.body(restored.saved), "saved").state.cold.rows.segments
    assert await world.segments() == others


@deep
async def test_a_repaired_queue_keeps_its_segments_and_a_copy_with_all_rows(world: Deep) -> None:
    await world.fill()
    contents, before = await world.contents(), await world.head()
    body = await world.body()
    await world.reader.put(KEY, body.replace(b'"paused":false', b'"paused":true '))
    with pytest.raises(CorruptStateError):
        await admin.backup(world.object())
    found = await admin.repair(world.object(), accept=True)
    assert found.saved
    head = await world.head()
    assert (head.paused, head.version) == (True, before.version + 1)
    assert list(head.cold.rows.segments) == list(before.cold.rows.segments)
    saved = decode(await world.body(found.saved), "saved").state
    assert [job.id for job in saved.jobs] == [job[0] for job in contents]
    assert await world.contents() == contents


@deep
async def test_a_restore_that_may_not_write_segments_writes_a_large_object(world: Deep) -> None:
    await world.fill()
    copy = await admin.backup(world.object())
    target = world.object(OTHER)

    async def refuse(key: str, body: bytes) -> str:
        if "/segments/" in key:
            raise StoreRefusedError("segments are not allowed")
        return await type(target.store).create(target.store, key, body)

    target.store.create = refuse  # type: ignore[method-assign]
    restored = await admin.restore(target, copy.body)
    assert restored.refusal == "segments are not allowed"
    assert len((await world.head(OTHER)).jobs) == 100


def test_a_restore_can_be_killed_at_any_step() -> None:
    outcomes = set()
    for steps in range(1, 400, 7):
        outcomes.add(run(partial(killed, steps)))
        if outcomes >= {"old", "new"}:
            break
    assert outcomes == {"old", "new"}


async def killed(steps: int, loop: VirtualLoop) -> str:
    """Kill a restore after some steps; the queue must be whole, old or new."""
    world = Deep(loop)
    await world.fill()
    copy = await admin.backup(world.object())
    async with world.open(DirectCommitter) as queue:
        await queue.push("c", 1)
    before, contents = await world.head(), await world.contents()
    process = world.loop.spawn(
        "restore", lambda: admin.restore(world.object(), copy.body, overwrite=True)
    )
    process.kill_after(steps)
    await process.wait()
    await asyncio.sleep(60)
    head, keys = await world.head(), await world.segments()
    assert named(head) <= set(keys)
    if head.incarnation == before.incarnation:
        assert await world.contents() == contents
        again = await admin.restore(world.object(), copy.body, overwrite=True)
        assert again.summary.jobs == {"queued": 100}
        return "old"
    assert [job[:4] for job in await world.contents()] == [job[:4] for job in contents[:-1]]
    [saved] = [key for key in await world.keys() if re.search(r"\.replaced-", key)]
    assert len(decode(await world.body(saved), "saved").state.jobs) == 101
    return "new"


@pytest.mark.parametrize("seed", range(6))
def test_copies_restores_sweeps_and_deletions_survive_a_bad_network(seed: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = Deep(loop)
        await world.fill()
        contents = await world.contents()
        world.store.set_faults(Faults.harsh())
        copy = await admin.backup(world.object())
        assert len(decode(copy.body, "copy").state.jobs) == 100
        restored = await retried(lambda: admin.restore(world.object(OTHER), copy.body))
        assert restored is None or restored.segments > 1
        await retried(lambda: admin.sweep(world.object(OTHER)))
        seen = await world.object().read()
        await retried(lambda: admin.delete(world.object(), seen))
        world.store.end_faults()
        await asyncio.sleep(600)
        assert [job[:4] for job in await world.contents(OTHER)] == [job[:4] for job in contents]
        if KEY in await world.keys():
            await admin.delete(world.object(), await world.object().read())
        assert await world.segments() == []

    run(main, seed=seed)


async def retried(act: Callable[[], Awaitable[A]]) -> A | None:
    """Do something that may have been done by a try whose answer was lost."""
    for _ in range(20):
        try:
            return await act()
        except UnavailableError:
            continue
        except RejectedError:
            return None
    raise AssertionError("it never ends")

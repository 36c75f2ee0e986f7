"""Restoring a copy of which only some jobs are in memory at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest

from bucketq import admin
from bucketq.errors import CorruptStateError, StoreRefusedError
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from bucketq.testing import VirtualLoop, run
from tests.unit.admin.deep_queues import OTHER, Deep

PORTION_BYTES = 3000


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["bucketq.admin.restore"], "_PORTION_BYTES", PORTION_BYTES)


def with_checksum(rest: bytes) -> bytes:
    return b'{"format":1,"checksum":"crc32:%08x","bytes":%d,\n' % (crc32(rest), len(rest)) + rest


def edited(body: bytes, old: bytes, new: bytes) -> bytes:
    """The copy with a change, as if bucketq had written it so."""
    _, _, rest = body.partition(b"\n")
    assert old in rest
    return with_checksum(rest.replace(old, new, 1))


async def mixed_queue(world: Deep) -> list[str]:
    """A queue with waiting, delayed, running, finished and dead jobs."""
    ids = await world.fill(200)
    async with world.open() as queue:
        jobs = await queue.claim("b", limit=20)
        for job in jobs[:8]:
            await queue.fail(job, "no", retry=False)
        for job in jobs[8:14]:
            await queue.complete(job)
    return ids


def test_only_some_jobs_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    add_jobs = State.add_jobs

    def counting(state: State, jobs: Sequence[JobRecord]) -> None:
        nonlocal most
        add_jobs(state, jobs)
        most = max(most, len(state.jobs))

    async def main(loop: VirtualLoop) -> None:
        world = Deep(loop)
        await mixed_queue(world)
        before = await world.contents()
        copy = await admin.backup(world.object())
        monkeypatch.setattr(State, "add_jobs", counting)
        restored = await admin.restore(world.object(OTHER), copy.body)
        assert restored.segments > 5
        assert restored.released == 8
        assert restored.summary.jobs == {"dead": 8, "done": 6, "queued": 186}
        again = {"running": "queued"}
        expected = [(*job[:4], again.get(job[4], job[4])) for job in before]
        assert await world.contents(OTHER) == expected
        assert most < 60

    run(main)


def test_fields_of_newer_code_are_kept() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = Deep(loop)
        ids = await world.fill(200)
        copy = await admin.backup(world.object())
        name = b'"id":"%s",' % ids[150].encode()
        body = edited(copy.body, name, name + b'"news":[1.50],')
        await admin.restore(world.object(OTHER), body)
        assert b'"news":[1.50]' in (await admin.backup(world.object(OTHER))).body

    run(main)


@pytest.mark.parametrize("fault", ["an id twice", "a number twice", "not a job", "not UTF-8"])
def test_a_bad_copy_is_refused_before_anything_is_written(fault: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = Deep(loop)
        ids = await world.fill(200)
        body = (await admin.backup(world.object())).body
        jobs = body.index(b'"jobs":[')
        old, new = {
            "an id twice": (ids[150].encode(), ids[3].encode()),
            "a number twice": (b'"seq":150,', b'"seq":149,'),
            "not a job": (b'"payload":150,', b'"payload":15O,'),
            "not UTF-8": (b'"payload":150,', b'"payload":"\xff",'),
        }[fault]
        rest = body[body.index(b"\n") + 1 : jobs] + body[jobs:].replace(old, new, 1)
        assert old in body[jobs:]
        keys = await world.keys()
        with pytest.raises(CorruptStateError, match="the copy is not a queue"):
            await admin.restore(world.object(OTHER), with_checksum(rest))
        assert await world.keys() == keys

    run(main)


def test_jobs_stay_in_the_object_from_the_first_refusal_on() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = Deep(loop)
        await world.fill(200)
        copy = await admin.backup(world.object())
        link: Any = world.store.connect("admin")
        create, count = link.create, 0

        async def refuse(key: str, body: bytes) -> str:
            nonlocal count
            count += "/segments/" in key
            if "/segments/" in key and count > 2:
                raise StoreRefusedError("quota exceeded")
            return str(await create(key, body))

        link.create = refuse
        restored = await admin.restore(world.object(OTHER, link), copy.body)
        assert (restored.segments, restored.refusal, count) == (2, "quota exceeded", 3)
        assert restored.summary.jobs == {"queued": 200}
        assert len(await world.contents(OTHER)) == 200

    run(main)

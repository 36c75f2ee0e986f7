"""Editing the object of a queue whose rows are in segments."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from bucketq import admin
from bucketq.errors import InvalidRequestError
from tests.unit.admin.deep_queues import Deep, deep


def with_job(text: bytes, job_id: str, seq: int, next_seq: int) -> bytes:
    """Add a job at the end of the text."""
    row = json.dumps(
        {
            "id": job_id,
            "kind": "added",
            "status": "queued",
            "seq": seq,
            "payload": 1,
            "pushed_at": "2024-05-17T12:00:00Z",
        }
    )
    text = re.sub(rb'"next_seq":\d+', b'"next_seq":%d' % next_seq, text)
    return text.removesuffix(b"\n]}\n") + b",\n" + row.encode() + b"\n]}\n"


@deep
async def test_an_edit_keeps_the_rows_in_segments(world: Deep) -> None:
    ids = await world.fill()
    before = await world.contents()
    draft = await admin.begin_edit(world.object())
    assert draft.segments == len((await world.head()).cold.rows) > 0
    assert 0 < draft.not_shown < len(ids)
    text = draft.text.replace(b'"paused":false', b'"paused":true')
    edited = await admin.finish_edit(world.object(), draft, text)
    assert edited.changes == {"paused": 1}
    assert await world.contents() == before
    assert (await world.head()).paused


@deep
async def test_the_table_of_segments_cannot_be_edited(world: Deep) -> None:
    await world.fill()
    draft = await admin.begin_edit(world.object())
    (first, *_) = (await world.head()).cold.rows.segments
    line = next(line for line in draft.text.splitlines() if first.encode() in line)
    number = json.loads(line.rstrip(b","))["seq"]
    for text in (
        draft.text.replace(line + b"\n", b""),
        draft.text.replace(line, line.replace(b'"seq":%d,' % number, b'"seq":%d,' % (number + 1))),
    ):
        assert text != draft.text
        with pytest.raises(InvalidRequestError):
            await admin.finish_edit(world.object(), draft, text)
    with pytest.raises(InvalidRequestError, match="leave 'requires' and 'segments' as they are"):
        await admin.finish_edit(world.object(), draft, draft.text.replace(line + b"\n", b""))


@deep
async def test_a_new_row_needs_a_number_and_an_id_that_no_row_in_a_segment_has(world: Deep) -> None:
    ids = await world.fill()
    head = await world.head()
    draft, free = await admin.begin_edit(world.object()), head.next_seq
    cold = next(job_id for job_id in ids if job_id not in head.jobs)
    (first, *_) = (row for row in head.jobs if row.status == "queued")
    taken = {row.seq for row in head.jobs}
    free_below = next(seq for seq in range(first.seq, 0, -1) if seq not in taken)
    line = next(
        line for line in draft.text.splitlines() if b'"id":"%s"' % first.id.encode() in line
    )
    other = line.replace(b'"seq":%d,' % first.seq, b'"seq":%d,' % free_below)
    assert other != line
    with pytest.raises(InvalidRequestError, match=f"use {free} or more"):
        await admin.finish_edit(world.object(), draft, draft.text.replace(line, other))
    with pytest.raises(InvalidRequestError, match=f"{cold} is the id of a row in a segment"):
        await admin.finish_edit(world.object(), draft, with_job(draft.text, cold, free, free + 1))
    before = await world.contents()
    await admin.finish_edit(world.object(), draft, with_job(draft.text, "new", free, free + 1))
    assert await world.contents() == [*before, ("new", "added", 1, 0, "queued")]


async def edit_a_row_that_spills(world: Deep) -> tuple[admin.Draft, bytes, str]:
    """Begin to edit; return the draft, the last line of it, and its job, which spills meanwhile."""
    await world.fill(20)
    draft = await admin.begin_edit(world.object())
    last = draft.text.splitlines()[-2]
    job_id = json.loads(last)["id"]
    assert job_id in (await world.head()).jobs
    async with world.open() as queue:
        for number in range(40):
            await queue.push("more", number)
        await asyncio.sleep(5)
    assert job_id not in (await world.head()).jobs
    return draft, last, job_id


@deep
async def test_a_row_that_an_edit_removes_and_that_spills_meanwhile_is_a_conflict(
    world: Deep,
) -> None:
    draft, last, job_id = await edit_a_row_that_spills(world)
    text = draft.text.replace(b",\n" + last, b"")
    reason = f"{job_id}, which you removed, may be in a segment now"
    with pytest.raises(admin.ChangedMeanwhileError, match=reason):
        await admin.finish_edit(world.object(), draft, text)


@deep
async def test_a_row_that_an_edit_changes_and_that_spills_meanwhile_is_a_conflict(
    world: Deep,
) -> None:
    draft, last, job_id = await edit_a_row_that_spills(world)
    text = draft.text.replace(last, last.replace(b'"kind":"', b'"kind":"other-'))
    reason = f"{job_id}, which you changed, may be in a segment now"
    with pytest.raises(admin.ChangedMeanwhileError, match=reason):
        await admin.finish_edit(world.object(), draft, text)


@deep
async def test_keys_that_an_edit_adds_get_numbers_behind_those_in_segments(world: Deep) -> None:
    await world.fill(20)
    async with world.open() as queue:
        for number in range(1100):
            await queue.push("k", number, key=f"more-{number}")
        await asyncio.sleep(5)
    draft = await admin.begin_edit(world.object())
    key = {"id": "mine", "seq": 5000, "job": "j", "digest": "d", "at": "2024-05-17T12:00:00Z"}
    line = b",\n" + json.dumps(key).encode()
    text = draft.text.replace(b'\n],"audit":', line + b'\n],"audit":')
    assert text != draft.text
    rows = re.search(rb'"keys":\[(.*?)\n\],', draft.text, re.DOTALL)
    assert rows is not None
    without_keys = draft.text.replace(rows[1], b"")
    await admin.finish_edit(world.object(), draft, without_keys)
    await admin.finish_edit(world.object(), draft, text)
    head = await world.head()
    (mine,) = head.keys
    assert mine.seq == max(each.record.last for each in head.cold.rows.of_class("keys")) + 1

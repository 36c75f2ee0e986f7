"""An edit of a queue that is in use is merged completely or rejected; no change is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bucketq import admin
from bucketq.codec.layout import TABLES, Head
from bucketq.codec.merge import BOOKKEEPING
from bucketq.errors import CorruptStateError, InvalidRequestError
from bucketq.queue.push_options import JobSpec
from tests.unit.commit.worlds import KEY, World, first, virtual

HEAD: dict[str, Any] = {
    "created_at": "2020-02-02T02:02:02Z",
    "broker": {"address": "", "id": "b", "epoch": 3, "since": "2026-01-01T00:00:00Z"},
    "settings": {"max_jobs": 77},
    "paused": True,
    "paused_kinds": ["mail", "post"],
    "next_seq": 1000,
    "horizon": 1,
    "last_served": [["", 0, "z"]],
    "time": {"at": "2020-02-02T02:02:02Z"},
}
"""A new value for each field of the head that may be edited."""


def stored(world: World) -> admin.QueueObject:
    return admin.QueueObject(world.store, KEY, "test://queue", world.clock)


async def crowded() -> tuple[World, admin.Draft]:
    """Make a queue with two rows in each table, and begin to edit it.

    Its jobs are running: rows of others may be in segments, which an edit does not show.
    """
    world = World()
    for number in range(2):
        async with world.direct() as queue:
            await queue.limit(group=f"g{number}", rate=100, period_s=86400)
            await queue.push("mail", number, key=f"key-{number}", group=f"g{number}")
            await queue.create_token(f"token-{number}", ["push"])
            await queue.open_consumer(f"consumer-{number}")
            await queue.schedule(f"schedule-{number}", "mail", number, every_s=86400)
            await queue.open_batch(batch_id=f"batch-{number}")
            await queue.publish(f"writer-{number}", 1, [JobSpec(kind="mail", payload=number)])
    async with world.direct() as queue:
        assert len(await queue.claim(limit=9)) == 4
    draft = await admin.begin_edit(stored(world))
    assert all(len(json.loads(draft.body)[table]) >= 2 for table in TABLES)
    return world, draft


async def finish(world: World, draft: admin.Draft, text: Any) -> admin.Edited:
    return await admin.finish_edit(stored(world), draft, json.dumps(text).encode())


async def read(world: World) -> Any:
    return json.loads(await world.body())


def ids(rows: list[Any]) -> list[str]:
    return [row["id"] for row in rows]


@pytest.mark.parametrize("table", TABLES)
@virtual
async def test_a_row_that_is_removed_while_others_write_is_gone(table: str) -> None:
    world, draft = await crowded()
    [pushed] = await world.rival_pushes()
    text = json.loads(draft.text)
    removed = text[table].pop(0)["id"]
    edited = await finish(world, draft, text)
    after = await read(world)
    assert removed not in ids(after[table])
    assert set(ids(text[table])) <= set(ids(after[table]))
    assert pushed in await world.ids()
    assert (edited.changed, edited.changes) == (1, {table: 1})


@pytest.mark.parametrize("table", TABLES)
@virtual
async def test_a_row_that_is_changed_while_others_write_is_changed(table: str) -> None:
    world, draft = await crowded()
    [pushed] = await world.rival_pushes()
    text = json.loads(draft.text)
    text[table][0]["note"] = "changed"
    await finish(world, draft, text)
    after = await read(world)
    assert after[table][0] == text[table][0]
    assert pushed in await world.ids()


@pytest.mark.parametrize("table", TABLES)
@virtual
async def test_a_row_that_is_added_while_others_write_is_placed_last(table: str) -> None:
    world, draft = await crowded()
    await world.rival_pushes(2)
    text = json.loads(draft.text)
    seq = text[table][-1]["seq"] + 1
    added = "kind=added" if table == "limits" else "added"
    text[table].append(text[table][-1] | {"id": added, "seq": seq})
    text["next_seq"] += table == "jobs"
    await finish(world, draft, text)
    after = await read(world)
    assert ids(after[table])[-1] == added
    numbers = [row["seq"] for row in after[table]]
    assert numbers == sorted(set(numbers))
    assert after["next_seq"] > max(row["seq"] for row in after["jobs"])


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("action", ["remove", "change"])
@virtual
async def test_a_row_that_another_process_changed_too_is_rejected(table: str, action: str) -> None:
    world, draft = await crowded()
    theirs = json.loads(draft.text)
    theirs[table][0]["note"] = "theirs"
    await finish(world, draft, theirs)
    before = await world.body()
    ours = json.loads(draft.text)
    row = ours[table][0]
    if action == "remove":
        del ours[table][0]
    else:
        row["note"] = "ours"
    with pytest.raises(admin.ChangedMeanwhileError, match=row["id"]):
        await finish(world, draft, ours)
    assert await world.body() == before


@pytest.mark.parametrize("table", TABLES)
@virtual
async def test_a_row_that_another_process_removed_is_not_brought_back(table: str) -> None:
    world, draft = await crowded()
    theirs = json.loads(draft.text)
    del theirs[table][0]
    await finish(world, draft, theirs)
    ours = json.loads(draft.text)
    ours[table][0]["note"] = "ours"
    with pytest.raises(admin.ChangedMeanwhileError, match=ours[table][0]["id"]):
        await finish(world, draft, ours)


@virtual
async def test_the_same_change_by_two_people_is_not_a_conflict() -> None:
    world, draft = await crowded()
    text = json.loads(draft.text)
    del text["tokens"][0]
    text["tokens"][0]["note"] = "kept"
    text["paused"] = True
    await finish(world, draft, text)
    await world.rival_pushes()
    await finish(world, draft, text)
    assert (await read(world))["tokens"] == text["tokens"]


@pytest.mark.parametrize("table", TABLES)
@virtual
async def test_a_number_cannot_be_changed_while_others_write(table: str) -> None:
    world, draft = await crowded()
    await world.rival_pushes()
    text = json.loads(draft.text)
    text[table][-1]["seq"] += 1
    text["next_seq"] += 1
    with pytest.raises(admin.ChangedMeanwhileError, match="seq"):
        await finish(world, draft, text)


@pytest.mark.parametrize("name", Head.__struct_fields__)
@virtual
async def test_a_field_of_the_head_is_merged_or_rejected(name: str) -> None:
    world, draft = await crowded()
    await world.rival_pushes()
    text = json.loads(draft.text)
    if name in BOOKKEEPING:
        requires = [] if text.get("requires") else ["segments"]
        changed = {
            "version": 99,
            "requires": requires,
            "former": ["01J"],
            "since": 3,
            "partition": {"index": 1, "count": 2},
        }
        text[name] = changed[name] if name in changed else text[name][:-1]
        with pytest.raises(InvalidRequestError):
            await finish(world, draft, text)
        return
    text[name] = HEAD[name]
    await finish(world, draft, text)
    assert (await read(world))[name] == HEAD[name]


@pytest.mark.parametrize("name", sorted(set(HEAD) - {"next_seq", "paused"}))
@virtual
async def test_a_field_of_the_head_that_another_process_changed_too_is_rejected(name: str) -> None:
    world, draft = await crowded()
    theirs = json.loads(draft.text)
    theirs[name] = {
        "created_at": "2021-02-02T02:02:02Z",
        "broker": HEAD["broker"] | {"epoch": 4},
        "settings": {"max_jobs": 78},
        "paused_kinds": ["post"],
        "horizon": 2,
        "time": {"at": "2021-02-02T02:02:02Z"},
        "last_served": [["", 0, "y"]],
    }[name]
    await finish(world, draft, theirs)
    ours = json.loads(draft.text)
    ours[name] = HEAD[name]
    with pytest.raises(admin.ChangedMeanwhileError, match=name):
        await finish(world, draft, ours)


@virtual
async def test_settings_are_merged_one_by_one() -> None:
    world, draft = await crowded()
    async with world.rival() as rival:
        await rival.configure(lease_s=90)
    text = json.loads(draft.text)
    text["settings"]["max_jobs"] = 7
    await finish(world, draft, text)
    edits = {"require_token": True, "lease_s": 90, "max_jobs": 7}
    assert (await read(world))["settings"] == json.loads(draft.text)["settings"] | edits


@virtual
async def test_unknown_fields_and_tables_are_merged_too() -> None:
    world, draft = await crowded()
    text = json.loads(draft.text)
    text["colours"] = [{"id": "mail", "seq": 1}]
    await finish(world, draft, text)
    draft = await admin.begin_edit(stored(world))
    await world.rival_pushes()
    text = json.loads(draft.text)
    text["colours"].append({"id": "post", "seq": 2})
    edited = await finish(world, draft, text)
    assert edited.changes == {"colours": 1}
    assert (await read(world))["colours"] == text["colours"]


@virtual
async def test_an_edit_is_merged_again_if_others_write_before_it_lands() -> None:
    world, draft = await crowded()
    text = json.loads(draft.text)
    leaked = text["tokens"].pop(0)["id"]
    world.store.plan("replace", first(world.rival_pushes), first(world.rival_pushes))
    await finish(world, draft, text)
    after = await read(world)
    assert leaked not in ids(after["tokens"])
    assert sum(job.kind == "rival" for job in (await world.state()).jobs) == 2


@virtual
async def test_an_edit_does_not_accept_a_raw_edit_that_was_made_meanwhile() -> None:
    world, draft = await crowded()
    await world.store.put(KEY, (await world.body()).replace(b'"mail"', b'"male"'))
    text = json.loads(draft.text)
    del text["tokens"][0]
    with pytest.raises(CorruptStateError, match="changed by hand"):
        await finish(world, draft, text)

"""Editing the object as text while others use it."""

from __future__ import annotations

import pytest

from bucketq import admin
from bucketq.errors import (
    CorruptStateError,
    InvalidRequestError,
    QueueNotFoundError,
    UnavailableError,
)
from bucketq.model.state import RING_LENGTH
from tests.unit.commit.worlds import (
    KEY,
    World,
    first,
    lose_answer,
    lost_then,
    then_lost,
    virtual,
)


def stored(world: World) -> admin.QueueObject:
    return admin.QueueObject(world.store, KEY, "test://queue", world.clock)


@virtual
async def test_an_edit_is_the_next_version_and_running_processes_continue() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("mail", {"to": "ada"}, priority=5)
        version = (await world.state()).version
        draft = await admin.begin_edit(stored(world))
        assert draft.text == await world.body()
        text = draft.text.replace(b'"priority":5', b'"priority":-1')
        edited = await admin.finish_edit(stored(world), draft, text)
        assert (edited.summary.version, edited.changed) == (version + 1, 1)
        await queue.push("mail", 2)
        [job] = await queue.claim()
        assert job.priority == -1


@virtual
async def test_an_edit_is_audited_and_cannot_change_the_audit() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.pause("mail")
        draft = await admin.begin_edit(stored(world))
        forged = draft.text.replace(b'"action":"pause"', b'"action":"resume"')
        assert forged != draft.text
        with pytest.raises(InvalidRequestError, match="leave 'audit' as it is"):
            await admin.finish_edit(stored(world), draft, forged)
        text = draft.text.replace(b'"paused_kinds":["mail"]', b'"paused_kinds":[]')
        await admin.finish_edit(stored(world), draft, text)
        paused, edited = await queue.audit()
        assert (paused.action, edited.action, edited.about) == (
            *("pause", "edit"),
            ("paused_kinds (1)",),
        )
        assert "@" in edited.by


@virtual
async def test_a_restored_queue_has_its_audit_and_no_workers() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.pause("mail")
        await queue.announce("w", run_id="1", host="h", pid=1, version="1", up_s=0)
    await admin.restore(stored(world), await world.body(), overwrite=True)
    state = await world.state()
    assert [row.action for row in state.audit] == ["pause", "restore"]
    assert not state.workers


@virtual
async def test_an_edit_may_be_made_in_indented_text() -> None:
    world = World()
    await world.rival_pushes(2)
    async with world.direct() as queue:
        await queue.claim(limit=2)  # So their rows are in the object.
    draft = await admin.begin_edit(stored(world), pretty=True)
    assert b'\n      "kind": "rival",' in draft.text
    edited = await admin.finish_edit(stored(world), draft, draft.text.replace(b"rival", b"other"))
    assert edited.changed == 2
    assert {job.kind for job in (await world.state()).jobs} == {"other"}


@virtual
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"jobs":[', b'"jobs":[,', "not valid JSON at line"),
        (b'"status":"queued"', b'"status":"waiting"', "waiting"),
        (b'"version":2', b'"version":9', "leave 'version' as it is"),
        (b'"incarnation":"', b'"incarnation":"X', "leave 'incarnation' as it is"),
        (b'"settings":{', b'"settings":{"lease_s":0,', "lease_s must be between"),
    ],
)
async def test_an_invalid_text_is_rejected_with_its_position(
    old: bytes, new: bytes, reason: str
) -> None:
    world = World()
    await world.rival_pushes()
    draft = await admin.begin_edit(stored(world))
    before = await world.body()
    assert old in draft.text
    with pytest.raises(InvalidRequestError, match=reason) as raised:
        await admin.finish_edit(stored(world), draft, draft.text.replace(old, new))
    assert "repair" not in str(raised.value)
    assert await world.body() == before


@virtual
async def test_an_edit_is_merged_with_changes_of_other_processes() -> None:
    world = World()
    async with world.direct() as queue:
        for number in range(3):
            await queue.push("mail", number, priority=7)
        done, running, _ = await queue.claim(limit=3)  # So their rows are in the object.
        draft = await admin.begin_edit(stored(world))
        lines = draft.text.splitlines(keepends=True)
        del lines[-2]  # The last job.
        lines[-2] = lines[-2].replace(b'"priority":7', b'"priority":1').replace(b"},\n", b"}\n")
        text = b"".join(lines).replace(b'"paused":false', b'"paused":true')
        await queue.complete(done)
        world.store.plan("replace", first(lambda: queue.push("late", 4)))
        edited = await admin.finish_edit(stored(world), draft, text)
        assert edited.changes == {"jobs": 2, "paused": 1}
        state = await world.state()
        assert [(job.kind, job.priority, job.status) for job in state.jobs] == [
            ("mail", 7, "done"),
            ("mail", 1, "running"),
            ("late", 0, "queued"),
        ]
        assert state.paused
        await queue.complete(running)


@virtual
async def test_an_added_job_is_placed_behind_those_pushed_meanwhile() -> None:
    world = World()
    await world.rival_pushes(1)
    draft = await admin.begin_edit(stored(world))
    [line] = [line for line in draft.text.splitlines() if b'"kind"' in line]
    mine = line.replace(b'"id":"', b'"id":"mine-').replace(b'"seq":1', b'"seq":2')
    text = draft.text.replace(line, line + b",\n" + mine).replace(b'"next_seq":2', b'"next_seq":3')
    await world.rival_pushes(1)
    await admin.finish_edit(stored(world), draft, text)
    state = await world.state()
    assert [job.seq for job in state.jobs] == [1, 2, 3]
    assert list(state.jobs)[2].id.startswith("mine-")


@virtual
async def test_an_edit_of_a_row_that_another_process_changed_is_rejected() -> None:
    world = World()
    async with world.direct() as queue:
        job_id = await queue.push("mail", 1, priority=7, key="k")
        draft = await admin.begin_edit(stored(world))
        await queue.claim()
        before = await world.body()
        changed = draft.text.replace(b'"priority":7', b'"priority":1')
        with pytest.raises(admin.ChangedMeanwhileError, match=f"job {job_id}"):
            await admin.finish_edit(stored(world), draft, changed)
        assert await world.body() == before


@virtual
async def test_an_edit_of_a_deleted_replaced_or_damaged_queue_is_rejected() -> None:
    world = World()
    await world.rival_pushes()
    draft = await admin.begin_edit(stored(world))
    await admin.restore(stored(world), draft.body, overwrite=True)
    text = draft.text.replace(b"rival", b"other")
    with pytest.raises(admin.ChangedMeanwhileError, match="replaced"):
        await admin.finish_edit(stored(world), draft, text)
    await world.store.delete(KEY)
    with pytest.raises(QueueNotFoundError, match="deleted while you edited"):
        await admin.finish_edit(stored(world), draft, text)
    await world.store.put(KEY, draft.body[:-9])
    with pytest.raises(CorruptStateError):
        await admin.begin_edit(stored(world))


@virtual
async def test_an_edit_reports_unknown_fields_and_resolves_a_lost_answer() -> None:
    world = World()
    await world.rival_pushes()
    draft = await admin.begin_edit(stored(world))
    world.store.plan("replace", lose_answer)
    text = draft.text.replace(b'"kind":"rival"', b'"kind":"rival","prioritty":3')
    edited = await admin.finish_edit(stored(world), draft, text)
    assert len(edited.unknown) == 1
    assert edited.unknown[0].startswith("prioritty (jobs ")
    assert (await world.state()).version == edited.summary.version


@virtual
async def test_an_edit_whose_answer_was_lost_many_commits_ago_has_an_unknown_outcome() -> None:
    world = World()
    await world.rival_pushes()
    draft = await admin.begin_edit(stored(world))
    text = draft.text.replace(b'"rival"', b'"other"')
    world.store.plan("replace", then_lost(lambda: world.rival_pushes(RING_LENGTH)))
    with pytest.raises(UnavailableError, match=r"unknown.*check whether your change is there"):
        await admin.finish_edit(stored(world), draft, text)
    assert next(iter((await world.state()).jobs)).kind == "other"  # It was written.


@virtual
async def test_an_edit_that_never_arrived_is_unknown_too_after_as_many_commits() -> None:
    world = World()
    await world.rival_pushes()
    draft = await admin.begin_edit(stored(world))
    text = draft.text.replace(b'"rival"', b'"other"')
    world.store.plan("replace", lost_then(lambda: world.rival_pushes(RING_LENGTH + 1)))
    with pytest.raises(UnavailableError, match="unknown"):
        await admin.finish_edit(stored(world), draft, text)
    assert next(iter((await world.state()).jobs)).kind == "rival"


@virtual
async def test_an_edit_with_fewer_commits_on_top_is_known_to_have_landed() -> None:
    world = World()
    await world.rival_pushes()
    draft = await admin.begin_edit(stored(world))
    text = draft.text.replace(b'"rival"', b'"other"')
    world.store.plan("replace", then_lost(lambda: world.rival_pushes(RING_LENGTH - 1)))
    edited = await admin.finish_edit(stored(world), draft, text)
    assert edited.changed == 1


@virtual
async def test_an_edit_is_merged_even_after_many_commits() -> None:
    world = World()
    await world.rival_pushes()
    async with world.direct() as queue:
        await queue.claim()  # So its row stays in the object.
    draft = await admin.begin_edit(stored(world))
    await world.rival_pushes(2 * RING_LENGTH)
    text = draft.text.replace(b'"rival"', b'"other"')
    edited = await admin.finish_edit(stored(world), draft, text)
    assert edited.changed == 1
    assert next(iter((await world.state()).jobs)).kind == "other"

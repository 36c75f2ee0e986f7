"""Administering the object, and what processes that use the queue notice."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bucketq import admin
from bucketq.archive.archive_layout import Layout
from bucketq.commit.request_ids import token_of
from bucketq.errors import (
    CorruptStateError,
    InvalidRequestError,
    LeaseLostError,
    NewerFormatError,
    QueueNotFoundError,
    RejectedError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.operations import LeaseRef, Push
from bucketq.model.state import RING_LENGTH
from tests.unit.commit.worlds import (
    KEY,
    World,
    conflict_with_itself,
    first,
    lose_answer,
    lose_request,
    lost_then,
    refuse,
    say_nothing,
    slowly,
    then_lost,
    virtual,
)


def stored(world: World, key: str = KEY) -> admin.QueueObject:
    return admin.QueueObject(world.store, key, "test://queue", world.clock)


async def keys(world: World) -> list[str]:
    return [info.key async for info in world.store.memory.list("")]


async def spoil(world: World, old: bytes, new: bytes) -> None:
    await world.store.memory.put(KEY, (await world.body()).replace(old, new))


@virtual
async def test_create_makes_an_empty_queue_with_its_settings() -> None:
    world = World()
    summary = await admin.create(stored(world), {"lease_s": 90, "max_jobs": 7})
    assert (summary.version, summary.jobs) == (1, {})
    async with world.direct(create=False) as queue:
        assert (await queue.settings()).lease_s == 90


@virtual
async def test_create_is_rejected_if_there_is_a_queue_or_a_setting_is_invalid() -> None:
    world = World()
    with pytest.raises(InvalidRequestError, match="unknown setting"):
        await admin.create(stored(world), {"leese_s": 90})
    assert await keys(world) == []
    await world.rival_pushes()
    before = await world.body()
    with pytest.raises(RejectedError, match="already"):
        await admin.create(stored(world))
    assert await world.body() == before


@virtual
@pytest.mark.parametrize("fault", [lose_answer, lose_request, conflict_with_itself])
async def test_create_resolves_a_lost_answer(fault: Any) -> None:
    world = World()
    world.store.plan("create", fault)
    await admin.create(stored(world))
    assert (await world.state()).version == 1


@virtual
async def test_of_two_creators_one_is_rejected() -> None:
    world = World()
    world.store.plan("create", first(world.rival_pushes))
    with pytest.raises(admin.ChangedMeanwhileError, match="already"):
        await admin.create(stored(world))
    assert len(await world.ids()) == 1


@virtual
async def test_delete_removes_the_seen_version_and_clients_get_an_error() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("a", 1)
        await admin.delete(stored(world), await stored(world).read())
        assert await keys(world) == []
        with pytest.raises(SupersededError, match="deleted"):
            await queue.push("a", 2)
    assert await keys(world) == []
    with pytest.raises(QueueNotFoundError, match="bucketq create"):
        await stored(world).read()


@virtual
async def test_delete_is_rejected_after_a_push() -> None:
    world = World()
    await world.rival_pushes()
    seen = await stored(world).read()
    await world.rival_pushes()
    with pytest.raises(admin.ChangedMeanwhileError, match="changed meanwhile"):
        await admin.delete(stored(world), seen)
    assert len(await world.ids()) == 2


@virtual
async def test_no_client_can_push_between_the_two_steps_of_a_deletion() -> None:
    world = World()
    await world.rival_pushes()
    stop = RuntimeError("killed")
    original = world.store.memory.delete

    async def killed(_: str) -> None:
        raise stop

    world.store.memory.delete = killed  # type: ignore[assignment,method-assign]
    with pytest.raises(RuntimeError):
        await admin.delete(stored(world), await stored(world).read())
    with pytest.raises(QueueNotFoundError):
        await world.rival_pushes()
    diagnosis = await admin.repair(stored(world), accept=True)
    assert diagnosis.problem == "its deletion was interrupted"
    world.store.memory.delete = original  # type: ignore[method-assign]
    await admin.delete(stored(world), await stored(world).read())
    assert await keys(world) == []


@virtual
async def test_create_and_restore_replace_an_interrupted_deletion() -> None:
    world = World()
    await world.rival_pushes()
    copy = await admin.backup(stored(world))
    stone = b'{"deleted_at":"2026-01-01T00:00:00Z","commit":"00"}\n'
    await world.store.memory.put(KEY, stone)
    await admin.create(stored(world))
    assert await world.ids() == []
    await world.store.memory.put(KEY, stone)
    restored = await admin.restore(stored(world), copy.body)
    assert (restored.saved, len(await world.ids())) == (None, 1)


@virtual
async def test_delete_may_include_the_archive() -> None:
    world = World()
    await world.rival_pushes()
    layout = Layout.of("memory://", KEY)
    archive_file = layout.file_key(world.clock.now(), 3, b"{}")
    for key in (archive_file, f"{layout.root}notes.txt", "queue.json.broken-x"):
        await world.store.put(key, b"{}")
    deleted = await admin.delete(stored(world), await stored(world).read(), archive=True)
    assert deleted == admin.Deleted(segments=0, archive_files=1)
    assert await keys(world) == ["queue.json.broken-x", f"{layout.root}notes.txt"]


@virtual
async def test_backup_is_verified_and_can_be_kept_in_another_object() -> None:
    world = World()
    with pytest.raises(QueueNotFoundError):
        await admin.backup(stored(world))
    await world.rival_pushes(3)
    copy = await admin.backup(stored(world))
    assert copy.summary.jobs == {"queued": 3}
    other = stored(world, "copies/monday.json")
    await admin.save_to(other, copy)
    assert (await world.store.memory.get("copies/monday.json")).body == copy.body
    await world.rival_pushes()
    later = await admin.backup(stored(world))
    with pytest.raises(admin.ChangedMeanwhileError, match="already"):
        await admin.save_to(other, later)
    await admin.save_to(other, later, overwrite=True)
    assert (await world.store.memory.get("copies/monday.json")).body == later.body
    await spoil(world, b'"paused":false', b'"paused":true')
    with pytest.raises(CorruptStateError):
        await admin.backup(stored(world))


@virtual
async def test_restore_is_a_new_incarnation_and_disconnects_workers() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("a", 1)
        [job] = await queue.claim("a")
        copy = await admin.backup(stored(world))
        await queue.complete(job)
        await queue.push("a", 2)
        before = await world.state()
        restored = await admin.restore(stored(world), copy.body, overwrite=True)
        assert restored.released == 1
        with pytest.raises(SupersededError, match="incarnation"):
            await queue.push("a", 3)
    state = await world.state()
    assert state.incarnation != before.incarnation
    assert state.version == before.version + 1
    assert list(state.commits) == [state.commits[-1]]
    assert (len(state.sessions), state.sessions.horizon) == (0, state.version)
    [again] = state.jobs
    assert (again.status, again.failures, again.lost_leases) == ("queued", 0, 0)
    assert (again.lease, again.worker, again.claimed_at, again.heartbeat_at) == (None,) * 4


@virtual
async def test_after_a_restore_the_old_lease_is_lost_and_attempts_never_repeat() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("a", 1)
        copy = await admin.backup(stored(world))
        [job] = await queue.claim("a")
        await admin.restore(stored(world), copy.body, overwrite=True)
    async with world.direct() as queue:
        [again] = await queue.claim("a")
        assert again.attempt > job.attempt
        with pytest.raises(LeaseLostError):
            await queue.complete(LeaseRef(job.id, job.lease.lease))
        await queue.complete(again)


@virtual
async def test_after_a_restore_an_old_request_is_answered_unknown() -> None:
    world = World()
    async with world.direct() as queue:
        request = queue._sender.new_id(Push, None).request(Push(jobs=()))
        token = token_of(request, queue._committer.version)
        await queue.push("a", 1, request=token)
        copy = await admin.backup(stored(world))
    await admin.delete(stored(world), await stored(world).read())
    await admin.restore(stored(world), copy.body)
    async with world.direct() as queue:
        with pytest.raises(UnavailableError, match="unknown"):
            await queue.push("a", 1, request=token)
    assert len(await world.ids()) == 1


@virtual
async def test_restore_replaces_only_on_request_and_keeps_the_previous_object() -> None:
    world = World()
    await world.rival_pushes(2)
    copy = await admin.backup(stored(world))
    await world.rival_pushes(1)
    before, all_rows = await world.body(), (await admin.backup(stored(world))).body
    with pytest.raises(RejectedError, match="--replace"):
        await admin.restore(stored(world), copy.body)
    assert await world.body() == before
    restored = await admin.restore(stored(world), copy.body, overwrite=True)
    assert restored.saved
    assert re.fullmatch(r"queue\.json\.replaced-\d{8}T\d{6}Z", restored.saved)
    assert (await world.store.memory.get(restored.saved)).body == all_rows
    assert len(await world.ids()) == 2


@virtual
async def test_restore_rejects_a_damaged_copy_and_an_object_of_a_newer_format() -> None:
    world = World()
    await world.rival_pushes()
    copy = await admin.backup(stored(world))
    with pytest.raises(CorruptStateError, match="truncated"):
        await admin.restore(stored(world), copy.body[:-20], overwrite=True)
    await spoil(world, b'{"format":1', b'{"format":3')
    newer = await world.body()
    with pytest.raises(NewerFormatError):
        await admin.restore(stored(world), copy.body, overwrite=True)
    assert await world.body() == newer


@virtual
async def test_restore_over_a_damaged_object_continues_above_its_version() -> None:
    world = World()
    await world.rival_pushes()
    copy = await admin.backup(stored(world))
    await world.rival_pushes(5)
    version = (await world.state()).version
    await world.store.memory.put(KEY, (await world.body())[:-30])
    restored = await admin.restore(stored(world), copy.body, overwrite=True)
    assert restored.summary.version == version + 1
    assert restored.saved
    assert ".broken-" in restored.saved


@virtual
async def test_a_restore_in_conflict_is_rejected_and_one_in_doubt_is_resolved() -> None:
    world = World()
    await world.rival_pushes()
    copy = await admin.backup(stored(world))
    world.store.plan("replace", first(world.rival_pushes))
    with pytest.raises(admin.ChangedMeanwhileError):
        await admin.restore(stored(world), copy.body, overwrite=True)
    assert len(await world.ids()) == 2
    world.store.plan("replace", then_lost(world.rival_pushes))
    restored = await admin.restore(stored(world), copy.body, overwrite=True)
    state = await world.state()
    assert state.incarnation == restored.summary.incarnation
    assert len(state.jobs) == 2


@virtual
async def test_repair_reports_the_problem_and_changes_nothing_by_itself() -> None:
    world = World()
    await world.rival_pushes()
    assert (await admin.repair(stored(world), accept=True)).problem is None
    await spoil(world, b'"rival"', b'"reval!"')
    before = await world.body()
    diagnosis = await admin.repair(stored(world))
    assert diagnosis.problem
    assert diagnosis.problem.startswith("changed by hand or damaged")
    assert "repair" not in diagnosis.problem
    assert (diagnosis.refusal, diagnosis.saved) == (None, None) or diagnosis.refusal
    assert await world.body() == before
    assert await keys(world) == [KEY]


@virtual
async def test_repair_accepts_a_manual_edit_and_running_processes_continue() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("mail", {"to": "ada"})
        await spoil(world, b'"ada"', b'"bob"')
        broken = await world.body()
        with pytest.raises(CorruptStateError):
            await queue.push("mail", 2)
        diagnosis = await admin.repair(stored(world), accept=True)
        assert diagnosis.saved
        assert (await world.store.memory.get(diagnosis.saved)).body == broken
        await queue.push("mail", 2)
        [job, _] = (await queue.jobs()).jobs
        assert job.payload == {"to": "bob"}


@virtual
async def test_repair_rejects_a_truncated_object() -> None:
    world = World()
    await world.rival_pushes(3)
    await world.store.memory.put(KEY, (await world.body())[:-40])
    before = await keys(world)
    diagnosis = await admin.repair(stored(world), accept=True)
    assert diagnosis.problem
    assert "truncated" in diagnosis.problem
    assert diagnosis.refusal
    assert "not valid JSON at line" in diagnosis.refusal
    assert await keys(world) == before


@virtual
async def test_a_rejecting_store_is_reported_and_a_silent_one_times_out() -> None:
    world = World()
    world.store.plan("create", refuse)
    with pytest.raises(StoreRefusedError):
        await admin.create(stored(world))
    world.store.plan("create", lose_request, refuse)
    await admin.create(stored(world, "other.json"))
    world.store.break_down(say_nothing)
    with pytest.raises(UnavailableError, match="could not be read"):
        await stored(world).read()
    world.store.break_down(None)
    world.store.stand("create", say_nothing)
    with pytest.raises(UnavailableError, match="may have landed"):
        await admin.create(stored(world))


@virtual
async def test_copies_made_within_one_second_have_different_names() -> None:
    world = World()
    await world.rival_pushes()
    copy = await admin.backup(stored(world))
    saved = set()
    for _ in range(3):
        restored = await admin.restore(stored(world), copy.body, overwrite=True)
        saved.add(restored.saved)
    assert len(saved) == 3


@virtual
@pytest.mark.parametrize("commits", [1, RING_LENGTH + 6])
async def test_a_creation_and_a_restore_are_certain_however_many_commits_follow(
    commits: int,
) -> None:
    """Both begin an incarnation, so every object of that incarnation descends from them."""
    world = World()
    world.store.plan("create", then_lost(lambda: world.rival_pushes(commits)))
    created = await admin.create(stored(world))
    assert (await world.state()).incarnation == created.incarnation
    copy = await admin.backup(stored(world))
    world.store.plan("replace", then_lost(lambda: world.rival_pushes(commits)))
    restored = await admin.restore(stored(world), copy.body, overwrite=True)
    assert (await world.state()).incarnation == restored.summary.incarnation


@virtual
async def test_a_restore_or_deletion_in_conflict_with_many_commits_is_rejected_as_lost() -> None:
    """The old incarnation is still there, so the write that would have replaced it never landed."""
    world = World()
    await world.rival_pushes()
    copy = await admin.backup(stored(world))
    world.store.plan("replace", lost_then(lambda: world.rival_pushes(RING_LENGTH + 6)))
    with pytest.raises(admin.ChangedMeanwhileError):
        await admin.restore(stored(world), copy.body, overwrite=True)
    seen = await stored(world).read()
    world.store.plan("replace", lost_then(lambda: world.rival_pushes(RING_LENGTH + 6)))
    with pytest.raises(admin.ChangedMeanwhileError):
        await admin.delete(stored(world), seen)


@virtual
async def test_a_repair_whose_answer_was_lost_many_commits_ago_has_an_unknown_outcome() -> None:
    world = World()
    await world.rival_pushes()
    await spoil(world, b'"rival"', b'"reval"')
    world.store.plan("replace", then_lost(lambda: world.rival_pushes(RING_LENGTH)))
    with pytest.raises(UnavailableError, match=r"unknown.*check whether your change is there"):
        await admin.repair(stored(world), accept=True)


@virtual
async def test_a_write_in_doubt_is_not_reported_as_rejected_if_reading_is_rejected() -> None:
    world = World()
    await world.rival_pushes()
    draft = await admin.begin_edit(stored(world))
    text = draft.text.replace(b'"rival"', b'"other"')
    world.store.plan("replace", lose_answer)
    world.store.plan("get", slowly(0), refuse, refuse)
    edited = await admin.finish_edit(stored(world), draft, text)
    assert edited.changed == 1

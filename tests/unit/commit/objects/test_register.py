"""The register: what became of a write, told from what is in the object and nothing else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from msgspec import Raw

from bucketq.codec.decode import decode
from bucketq.codec.document import Document, Prepared
from bucketq.commit.objects.register import Register, Settled
from bucketq.errors import (
    CorruptStateError,
    StoreRefusedError,
    SupersededError,
)
from bucketq.model.base import NewJob
from bucketq.model.operations import Push, Request
from bucketq.model.state import RING_LENGTH
from bucketq.model.transitions import apply
from bucketq.store.base import ObjectMissingError
from bucketq.store.resolve_write import Verdict
from tests.unit.commit.worlds import (
    KEY,
    Fault,
    World,
    conflict_for_no_reason,
    conflict_with_itself,
    first,
    late,
    lose_answer,
    lose_request,
    lost_then,
    refuse,
    say_nothing,
    slowly,
    then_lost,
    throttle,
    virtual,
)


def push(world: World, document: Document, job_id: str, size_bytes: int = 1) -> None:
    """Change a document, so that there is something to commit."""
    job = NewJob(id=job_id, kind="mail", payload=Raw(b'"%b"' % (b"x" * size_bytes)))
    assert apply(document.state, Request(Push(jobs=(job,))), world.clock.now()).error is None


async def commit(
    world: World, register: Register, document: Document, job_id: str = "ours"
) -> Settled:
    push(world, document, job_id)
    return await register.commit(document, register.prepare(document))


async def opened(world: World) -> tuple[Register, Document]:
    register = world.register()
    return register, await register.open(create=True)


@virtual
async def test_a_commit_that_is_answered_has_landed() -> None:
    world = World()
    register, document = await opened(world)
    settled = await commit(world, register, document)
    assert settled == Settled(Verdict.LANDED, document)
    assert (await world.ids(), register.version) == (["ours"], 2)
    assert world.store.count("replace") == 1


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (lose_answer, 1),
        (conflict_with_itself, 1),
        (say_nothing, 2),
        (lose_request, 2),
        (conflict_for_no_reason, 2),
        (throttle, 2),
    ],
)
@virtual
async def test_the_object_decides_the_outcome_and_the_same_bytes_are_written_again(
    fault: Fault, tries: int
) -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", fault)
    settled = await commit(world, register, document)
    assert settled == Settled(Verdict.LANDED, document)
    assert (await world.ids(), register.version) == (["ours"], 2)
    assert len(world.store.bodies) == tries
    assert len(set(world.store.bodies)) == 1
    # It goes on from there without reading the object again.
    assert (await commit(world, register, document, "next")).verdict is Verdict.LANDED
    assert await world.ids() == ["ours", "next"]


@virtual
async def test_a_write_that_lands_late_counts_and_counts_once() -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", late(5), slowly(8))
    settled = await commit(world, register, document)
    assert settled == Settled(Verdict.LANDED, document)
    assert (await world.ids(), (await world.state()).version) == (["ours"], 2)


@virtual
async def test_a_write_that_would_land_late_cannot_when_its_repetition_has_landed() -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", late(60))
    await commit(world, register, document)
    await commit(world, register, document, "next")
    await asyncio.sleep(100)
    assert await world.ids() == ["ours", "next"]


@virtual
async def test_a_commit_is_lost_where_another_writer_was_first() -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", first(world.rival_pushes))
    settled = await commit(world, register, document)
    assert settled.verdict is Verdict.LOST
    assert settled.document is not document
    rivals = [job.id for job in settled.document.state.jobs]
    assert rivals == await world.ids()
    assert "ours" not in rivals
    # The fresh document is one that can be gone on with.
    again = await commit(world, register, settled.document)
    assert again.verdict is Verdict.LANDED
    assert await world.ids() == [*rivals, "ours"]


@pytest.mark.shallow
@virtual
async def test_a_commit_has_landed_also_where_others_wrote_on_top_of_it() -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", then_lost(lambda: world.rival_pushes(3)))
    settled = await commit(world, register, document)
    assert settled.verdict is Verdict.LANDED
    assert [job.id for job in settled.document.state.jobs] == await world.ids()
    assert (await world.ids())[0] == "ours"
    assert (await commit(world, register, settled.document, "next")).verdict is Verdict.LANDED


@pytest.mark.shallow
@pytest.mark.parametrize(
    ("fault", "rivals", "verdict"),
    [
        (then_lost, RING_LENGTH - 1, Verdict.LANDED),
        (then_lost, RING_LENGTH, Verdict.FORGOTTEN),
        (lost_then, RING_LENGTH, Verdict.LOST),
        (lost_then, RING_LENGTH + 1, Verdict.FORGOTTEN),
    ],
)
@virtual
async def test_what_lies_too_far_back_is_neither_landed_nor_lost(
    fault: Callable[..., Fault], rivals: int, verdict: Verdict
) -> None:
    world = World()
    register, document = await opened(world)
    # The ring of a young queue reaches back to its beginning.
    await world.rival_pushes(RING_LENGTH)
    document = await register.load()
    world.store.plan("replace", fault(lambda: world.rival_pushes(rivals)))
    settled = await commit(world, register, document)
    assert settled.verdict is verdict
    assert ("ours" in await world.ids()) == (fault is then_lost)


@virtual
async def test_the_same_version_under_another_etag_is_the_same() -> None:
    world = World()
    register, document = await opened(world)
    await commit(world, register, document, "before")
    await world.store.put(KEY, await world.body())
    assert await register.refresh(document) is document
    await world.store.put(KEY, await world.body())
    settled = await commit(world, register, document)
    assert settled == Settled(Verdict.LANDED, document)
    assert await world.ids() == ["before", "ours"]


async def forked(world: World) -> tuple[Register, Document, bytes]:
    """A register that committed version 2, and another version 2 that somebody else made."""
    register, document = await opened(world)
    other = decode(await world.body(), "test://queue")
    push(world, other, "theirs")
    await commit(world, register, document, "before")
    fork = other.prepare("0123456789abcdef").body
    assert decode(fork, "test://queue").state.version == register.version
    return register, document, fork


@virtual
async def test_other_content_under_the_same_version_stops_everything() -> None:
    world = World()
    register, document, fork = await forked(world)
    await world.store.put(KEY, fork)
    with pytest.raises(CorruptStateError, match="something else writes this object"):
        await register.refresh(document)
    with pytest.raises(CorruptStateError):
        await register.load()
    with pytest.raises(CorruptStateError):
        await commit(world, register, document)
    assert await world.body() == fork


@virtual
async def test_an_object_that_was_deleted_is_not_made_again_from_memory() -> None:
    world = World()
    register, document = await opened(world)
    await commit(world, register, document, "before")
    await world.store.delete(KEY)
    with pytest.raises(SupersededError, match="deleted while it was in use"):
        await register.refresh(document)
    with pytest.raises(SupersededError):
        await register.load()
    with pytest.raises(SupersededError):
        await register.open(create=True)
    with pytest.raises(SupersededError):
        await commit(world, register, document)
    with pytest.raises(ObjectMissingError):
        await world.body()


@virtual
async def test_an_object_that_is_deleted_while_a_write_is_in_doubt_is_not_made_again() -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", lost_then(lambda: world.store.delete(KEY)))
    with pytest.raises(SupersededError, match="deleted"):
        await commit(world, register, document)
    with pytest.raises(ObjectMissingError):
        await world.body()


@virtual
async def test_an_object_that_was_rolled_back_is_refused_and_left_alone() -> None:
    world = World()
    register, document = await opened(world)
    old = await world.body()
    await commit(world, register, document, "before")
    await world.store.put(KEY, old)
    with pytest.raises(SupersededError, match="rolled back from version 2 to 1"):
        await register.refresh(document)
    with pytest.raises(SupersededError):
        await commit(world, register, document)
    assert await world.body() == old


@virtual
async def test_another_queue_in_the_same_place_is_refused_and_left_alone() -> None:
    world = World()
    register, document = await opened(world)
    await world.store.delete(KEY)
    await world.rival_pushes(5)
    other = await world.body()
    with pytest.raises(SupersededError, match="holds another queue"):
        await register.refresh(document)
    with pytest.raises(SupersededError, match="holds another queue"):
        await commit(world, register, document)
    assert await world.body() == other


@virtual
async def test_a_refusal_is_final_where_nothing_is_in_doubt() -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", refuse)
    with pytest.raises(StoreRefusedError, match="no space"):
        await commit(world, register, document)
    assert world.store.count("replace") == 1
    fresh = await register.load()
    assert (await commit(world, register, fresh)).verdict is Verdict.LANDED


@pytest.mark.parametrize("before", [lose_answer, lose_request, late(20)])
@virtual
async def test_a_refusal_decides_nothing_about_an_earlier_try_that_is_in_doubt(
    before: Fault,
) -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", before, refuse, refuse)
    world.store.plan("get_if_changed", lose_request, refuse)
    settled = await commit(world, register, document)
    assert settled == Settled(Verdict.LANDED, document)
    await asyncio.sleep(30)
    assert (await world.ids(), (await world.state()).version) == (["ours"], 2)


@virtual
async def test_doubt_lasts_as_long_as_the_storage_is_away() -> None:
    world = World()
    register, document = await opened(world)
    world.store.break_down(lose_request)
    settling = asyncio.create_task(commit(world, register, document))
    await asyncio.sleep(3600)
    assert not settling.done()
    world.store.break_down(None)
    assert (await settling).verdict is Verdict.LANDED
    assert len(set(world.store.bodies)) == 1


@virtual
async def test_a_commit_that_is_given_up_leaves_the_register_usable() -> None:
    world = World()
    register, document = await opened(world)
    world.store.break_down(say_nothing)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await commit(world, register, document)
    world.store.break_down(None)
    fresh = await register.load()
    assert (await commit(world, register, fresh)).verdict is Verdict.LANDED


@virtual
async def test_throttling_slows_the_writes_and_success_brings_the_pace_back() -> None:
    world = World()
    register, document = await opened(world)
    world.store.plan("replace", *[throttle] * 5)
    await commit(world, register, document)
    at = world.store.written_at
    pauses = [after - before for before, after in itertools.pairwise(at)]
    assert len(pauses) == 5
    # The next write may begin a pause after the last: 0.1, 0.2, 0.4, ... though less by as much
    # as was waited anyway. The last pauses show that the bound has doubled.
    assert pauses[-1] > 0.4
    for number in range(40):
        await commit(world, register, document, f"job-{number}")
    assert at[-1] == at[-2]


@virtual
async def test_writes_keep_the_distance_that_the_store_asks_for() -> None:
    world = World(write_interval_s=1.0)
    register, document = await opened(world)
    for number in range(5):
        await commit(world, register, document, f"job-{number}")
    at = world.store.written_at
    assert all(after - before >= 1 for before, after in itertools.pairwise(at))
    assert asyncio.get_running_loop().time() < 5


@pytest.mark.parametrize(("jobs", "tries"), [(1, 2), (8, 1)])
@virtual
async def test_a_large_write_is_given_more_time(jobs: int, tries: int) -> None:
    world = World()
    register, document = await opened(world)
    for number in range(jobs):
        push(world, document, f"job-{number}", size_bytes=1_000_000)
    world.store.plan("replace", slowly(15))
    settled = await register.commit(document, register.prepare(document))
    assert settled.verdict is Verdict.LANDED
    assert world.store.count("replace") == tries


@virtual
async def test_a_commit_on_a_base_that_was_never_read_is_a_mistake_of_ours() -> None:
    world = World()
    register, _ = await opened(world)
    with pytest.raises(AssertionError, match="never loaded"):
        await register.commit(await register.load(), Prepared(b"", 7, "c"))
    with pytest.raises(AssertionError):
        await world.register().commit(await register.load(), Prepared(b"", 2, "c"))


@virtual
async def test_a_refresh_without_a_change_costs_no_body_and_decodes_nothing() -> None:
    world = World()
    register, document = await opened(world)
    assert await register.refresh(document) is document
    await world.rival_pushes()
    fresh = await register.refresh(document)
    assert fresh is not document
    assert fresh.state.version == register.version == 2


@virtual
async def test_an_answer_that_is_older_than_our_own_commit_does_not_set_us_back() -> None:
    world = World()
    register, document = await opened(world)

    async def answer_late(effect: Callable[..., object]) -> object:
        found = await effect()  # type: ignore[misc]
        await asyncio.sleep(5)
        return found

    world.store.plan("get", answer_late)
    reading = asyncio.create_task(register.load())
    await asyncio.sleep(1)
    await commit(world, register, document)
    assert (await reading).state.version == 1
    assert register.version == 2
    assert (await commit(world, register, document, "next")).verdict is Verdict.LANDED

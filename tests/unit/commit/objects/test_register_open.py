"""Opening a register: find the queue, or make one, and touch nothing that is none."""

from __future__ import annotations

import pytest

from bucketq.codec.decode import decode
from bucketq.codec.tombstone import Tombstone
from bucketq.commit.objects.register import Register
from bucketq.errors import (
    CorruptStateError,
    NewerFormatError,
    QueueNotFoundError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.store.resolve_write import Verdict
from bucketq.testing import SimulatedClock, SimulatedStore, current_loop
from tests.unit.commit.objects.test_register import commit, opened
from tests.unit.commit.worlds import (
    KEY,
    Fault,
    World,
    conflict_with_itself,
    first,
    lose_answer,
    lose_request,
    refuse,
    say_nothing,
    virtual,
)


@pytest.mark.parametrize("fault", [lose_answer, lose_request, conflict_with_itself, say_nothing])
@virtual
async def test_a_creation_without_an_answer_makes_one_queue(fault: Fault) -> None:
    world = World()
    world.store.plan("create", fault)
    world.store.plan("get", lose_request)
    register, document = await opened(world)
    assert (await world.state()).incarnation == document.state.incarnation
    assert (await commit(world, register, document)).verdict is Verdict.LANDED
    assert (await world.state()).version == 2


@virtual
async def test_of_two_that_create_at_once_both_use_the_same_queue() -> None:
    world = World()
    world.store.plan("create", first(world.rival_pushes))
    _, document = await opened(world)
    assert [job.id for job in document.state.jobs] == await world.ids()
    assert len(await world.ids()) == 1


@virtual
async def test_a_queue_that_is_not_there_is_not_created_unasked() -> None:
    world = World()
    world.store.plan("get", lose_request)
    with pytest.raises(QueueNotFoundError, match="no queue at test://queue"):
        await world.register().open(create=False)
    assert "create" not in world.store.calls


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", CorruptStateError),
        (b"{}", CorruptStateError),
        (b"garbage\n", CorruptStateError),
        (b"\xff\xfe", CorruptStateError),
        (b'{"format":3}\n', NewerFormatError),
        (b'{"format":2,"requires":["news"]}\n', NewerFormatError),
    ],
)
@virtual
async def test_an_object_that_is_not_a_queue_is_rejected_and_left_alone(
    body: bytes, error: type[Exception]
) -> None:
    world = World()
    await world.store.put(KEY, body)
    with pytest.raises(error):
        await world.register().open(create=True)
    assert await world.body() == body


@virtual
async def test_a_truncated_object_is_refused_and_left_alone() -> None:
    world = World()
    register, document = await opened(world)
    await commit(world, register, document)
    whole = await world.body()
    for length in (1, len(whole) // 2, len(whole) - 2):
        await world.store.put(KEY, whole[:length])
        with pytest.raises(CorruptStateError):
            await register.refresh(document)
        with pytest.raises(CorruptStateError):
            await commit(world, register, decode(whole, "test://queue"))
        assert await world.body() == whole[:length]


@virtual
async def test_a_refusal_while_opening_is_raised() -> None:
    world = World()
    world.store.plan("create", refuse)
    with pytest.raises(StoreRefusedError):
        await world.register().open(create=True)
    world.store.plan("get", refuse)
    with pytest.raises(StoreRefusedError):
        await world.register().open(create=True)


@virtual
async def test_a_single_read_that_fails_is_raised_at_once() -> None:
    world = World()
    register, document = await opened(world)
    world.store.break_down(lose_request)
    with pytest.raises(UnavailableError):
        await register.load()
    with pytest.raises(UnavailableError):
        await register.refresh(document)


@virtual
async def test_a_store_that_ignores_conditions_is_refused_at_the_creation_of_a_queue() -> None:
    loop = current_loop()
    store = SimulatedStore(loop)
    link = store.connect()
    link.create = link.put  # type: ignore[method-assign]
    register = Register(link, "careless.json", "careless store", SimulatedClock(loop))
    with pytest.raises(StoreRefusedError, match="ignores conditional writes"):
        await register.open(create=True)
    assert store.peek("careless.json") is None


@virtual
async def test_a_queue_that_is_being_deleted_is_not_called_damaged() -> None:
    world = World()
    register, beside = world.register(), world.register()
    document = await register.open(create=True)
    await beside.open(create=False)
    found = await world.store.get(KEY)
    await world.store.replace(
        KEY, Tombstone(deleted_at=world.clock.now(), commit="c0ffee").encode(), found.etag
    )
    with pytest.raises(SupersededError, match="was deleted while it was in use"):
        await register.refresh(document)
    with pytest.raises(SupersededError, match="was deleted while it was in use"):
        await beside.load()
    for create in (True, False):
        with pytest.raises(QueueNotFoundError, match="is being deleted, or its deletion was"):
            await world.register().open(create=create)
    with pytest.raises(QueueNotFoundError, match="`bucketq delete` again"):
        await world.register().heading.read()

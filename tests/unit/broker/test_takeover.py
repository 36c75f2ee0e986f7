"""Who leads: what is evidence, and how a takeover is decided by the object."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bucketq.broker.takeover import DeposedError, Identity, Sign, elect, is_out_of_reach, probe
from bucketq.errors import UnavailableError
from bucketq.model.records import BrokerRecord
from bucketq.rpc.messages import Hello, Ping, Pong, Role
from bucketq.rpc.transport import (
    Connection,
    ConnectionLostError,
    Listener,
    NoBrokerThereError,
    Service,
)
from tests.unit.commit.worlds import (
    World,
    conflict_for_no_reason,
    first,
    late,
    lose_answer,
    lose_request,
    then_lost,
    virtual,
)

ADA = Identity("ada", "host1:4001", "host1")
BOB = Identity("bob", "host2:4001", "host2")
RECORD = BrokerRecord("host1:4001", "ada", 3, datetime(2026, 1, 1, tzinfo=UTC), "host1")


class Answering:
    """A transport whose every ping has the same answer."""

    def __init__(self, answer: Pong | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Ping]] = []

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        assert 0 < timeout_s <= 2
        self.asked.append((address, ping))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def open(self, address: str, hello: Hello, timeout_s: float) -> Connection:
        raise NotImplementedError

    async def listen(self, address: str, service: Service) -> Listener:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def pong(role: Role = "leading", broker: str = "ada", epoch: int = 3) -> Pong:
    return Pong(incarnation="i", broker=broker, role=role, epoch=epoch)


@pytest.mark.parametrize(
    ("answer", "sign"),
    [
        (pong(), Sign.ALIVE),
        (NoBrokerThereError("refused"), Sign.GONE),
        (ConnectionLostError("no answer in time"), Sign.SILENT),
        (pong("standing by"), Sign.GONE),
        (pong("cut off"), Sign.GONE),
        (pong("retired"), Sign.GONE),
        (pong(broker="another"), Sign.GONE),
        (pong(epoch=2), Sign.GONE),
    ],
    ids=lambda value: value.name if isinstance(value, Sign) else "",
)
@virtual
async def test_what_a_ping_shows_about_the_recorded_broker(
    answer: Pong | Exception, sign: Sign
) -> None:
    transport = Answering(answer)
    assert await probe(transport, RECORD, "incarnation") is sign
    asked = [("host1:4001", Ping(incarnation="incarnation"))]
    assert transport.asked == asked * (1 if sign is not Sign.SILENT else 5), "silence is asked on"


@pytest.mark.parametrize(
    ("address", "host", "out"),
    [
        ("127.0.0.1:1", "host1", False),
        ("127.0.0.1:1", "host2", True),
        ("localhost:1", "host2", True),
        ("[::1]:1", "host2", True),
        ("10.0.0.7:1", "host2", False),
        ("broker:1", "host2", False),
    ],
)
def test_a_loopback_address_of_another_host_is_out_of_reach(
    address: str, host: str, out: bool
) -> None:
    record = BrokerRecord(address, "ada", 3, RECORD.since, "host1")
    assert is_out_of_reach(record, host) is out


@pytest.mark.parametrize(
    ("there", "out"),
    [
        ("name/machine/boot/net", False),
        ("name/machine/boot/other-net", True),
        ("name/machine/earlier-boot/other-net", False),
        ("name/other-machine/other-boot/net", True),
        ("name//boot/net", True),
        ("whatever", True),
    ],
)
def test_a_loopback_of_this_machine_before_it_was_restarted_is_gone_and_not_out_of_reach(
    there: str, out: bool
) -> None:
    record = BrokerRecord("127.0.0.1:1", "ada", 3, RECORD.since, there)
    assert is_out_of_reach(record, "name/machine/boot/net") is out


async def stand(world: World, identity: Identity, after: int) -> int:
    """Stand for election; returns the epoch that was won."""
    register = world.register()
    await register.open(create=True)
    return (await elect(register, world.clock, identity, after)).state.epoch


@virtual
async def test_a_broker_that_follows_the_epoch_in_the_object_leads_the_next() -> None:
    world = World()
    assert await stand(world, ADA, 0) == 1
    assert await stand(world, BOB, 1) == 2
    broker = (await world.state()).broker
    assert broker is not None
    assert (broker.id, broker.address, broker.host, broker.epoch) == (
        "bob",
        BOB.address,
        "host2",
        2,
    )


@virtual
async def test_a_broker_that_leads_already_continues_without_a_write() -> None:
    world = World()
    await stand(world, ADA, 0)
    before = await world.body()
    assert await stand(world, ADA, 0) == 1
    assert await world.body() == before


@virtual
async def test_a_candidate_with_an_old_epoch_learns_which_broker_leads() -> None:
    world = World()
    await stand(world, ADA, 0)
    before = await world.body()
    with pytest.raises(DeposedError, match="epoch 1") as no:
        await stand(world, BOB, 0)
    assert no.value.leader == ADA.address
    assert await world.body() == before


@virtual
async def test_of_two_candidates_at_once_one_wins() -> None:
    world = World()
    await world.register().open(create=True)
    world.store.plan("replace", first(lambda: stand(world, BOB, 0)))
    with pytest.raises(DeposedError) as no:
        await stand(world, ADA, 0)
    assert no.value.leader == BOB.address


@pytest.mark.parametrize(
    "fault",
    [lose_request, lose_answer, conflict_for_no_reason, late(5.0)],
    ids=["lost", "landed", "conflict", "late"],
)
@virtual
async def test_a_takeover_whose_answer_is_lost_happens_once(fault: object) -> None:
    world = World()
    await world.register().open(create=True)
    world.store.plan("replace", fault)  # type: ignore[arg-type]
    assert await stand(world, ADA, 0) == 1
    assert (await world.state()).epoch == 1


@virtual
async def test_a_direct_writer_between_does_not_keep_anybody_from_leading() -> None:
    world = World()
    await world.register().open(create=True)
    world.store.plan("replace", *[first(world.rival_pushes)] * 3)
    assert await stand(world, ADA, 0) == 1
    assert len(await world.ids()) == 3


@virtual
async def test_a_candidate_that_loses_to_direct_writers_again_and_again_gives_up_at_last() -> None:
    world = World()
    await world.register().open(create=True)
    world.store.stand("replace", first(world.rival_pushes))
    with pytest.raises(DeposedError, match="changed 50 times"):
        await stand(world, ADA, 0)
    assert world.store.count("replace") == 50


@virtual
async def test_a_takeover_that_landed_and_was_forgotten_is_found_to_be_its_own() -> None:
    """So many commits came on top that the ring does not tell: the record in the state does."""
    world = World()
    await world.register().open(create=True)
    world.store.plan("replace", then_lost(lambda: world.rival_pushes(150)))
    assert await stand(world, ADA, 0) == 1
    assert world.store.count("replace") == 1, "it was not written twice"


@virtual
async def test_without_a_readable_store_no_broker_becomes_leader() -> None:
    world = World()
    register = world.register()
    await register.open(create=True)
    world.store.break_down(lose_request)
    with pytest.raises(UnavailableError):
        await elect(register, world.clock, ADA, 0)

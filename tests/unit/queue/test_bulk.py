"""What the verbs for numbered batches add to their operations: ids that follow from positions."""

from __future__ import annotations

from bucketq.queue.batch_verbs import _first_id, _id_at
from tests.unit.commit.worlds import World, virtual


def first_ids(writer: str, batch: int, part: int = 0, count: int = 3) -> list[str]:
    first = _first_id(writer, batch, part)
    return [_id_at(first, place) for place in range(count)]


def test_the_ids_of_a_position_are_the_same_for_every_publisher() -> None:
    assert first_ids("sink", 7) == first_ids("sink", 7)
    assert first_ids("sink", 7) == [
        "35PE9PNTSXRRBBZEV9K9V96THW",
        "35PE9PNTSXRRBBZEV9K9V96THX",
        "35PE9PNTSXRRBBZEV9K9V96THY",
    ]


def test_no_two_positions_share_an_id() -> None:
    positions = [("sink", 1, 0), ("sink", 1, 1), ("sink", 11, 0), ("sink/1", 1, 0), ("s", 1, 0)]
    ids = [job_id for position in positions for job_id in first_ids(*position, count=1000)]
    assert len(set(ids)) == len(ids)


@virtual
async def test_every_claim_of_a_batch_draws_a_secret_and_the_first_one_stays() -> None:
    world = World()
    async with world.direct() as queue:
        await queue.push("mail", 1)
        await queue.open_consumer("spark")
        await queue.claim_batch("spark", 1, 1)
        leases = [job.lease for job in (await queue.read_batch("spark", 1)).jobs]
        async with world.direct() as other:
            await other.claim_batch("spark", 1, 1)
            assert [job.lease for job in (await other.read_batch("spark", 1)).jobs] == leases

"""What every queue promises to engines that work in numbered batches, and repeat them."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from msgspec import Raw

import bucketq
from bucketq import (
    BatchState,
    ConsumerFencedError,
    ConsumerState,
    InvalidRequestError,
    JobSpec,
    Queue,
    RejectedError,
)
from bucketq.model.base import NewJob
from tests.contract.places import Place

SOON_S = 30.0
"""A lease that has run out is noticed by a look, about one a second; later on a busy machine."""


def specs(*payloads: int, **fields: Any) -> list[JobSpec[Any]]:
    return [JobSpec(kind="index", payload=payload, **fields) for payload in payloads]


async def payloads(queue: Queue[Any]) -> list[int]:
    return [job.payload for job in (await queue.jobs()).jobs]


async def test_a_batch_is_claimed_read_and_acknowledged(queue: Queue[Any]) -> None:
    await queue.push_many(specs(*range(5)))
    assert await queue.open_consumer("spark") == ConsumerState("spark", 1, 0, 0)
    state = await queue.claim_batch("spark", 1, 1, limit=4, worker="driver", lease_s=600)
    assert state == BatchState(1, 4)
    page = await queue.read_batch("spark", 1, limit=3)
    assert [job.payload for job in page.jobs] == [0, 1, 2]
    assert {(job.worker, job.lease_s, job.attempt) for job in page.jobs} == {("driver", 600.0, 1)}
    assert (page.lost, page.next_start) == ((), 3)
    rest = await queue.read_batch("spark", 1, start=3)
    assert [job.payload for job in rest.jobs] == [3]
    assert rest.next_start is None
    assert all(pulse.held for pulse in await queue.heartbeat(page.jobs))
    assert await queue.ack_batch("spark", 1, 1) == BatchState(1, 4)
    assert await queue.ack_batch("spark", 1, 1) == BatchState(1, 0)
    assert (await queue.stats()).total("done") == 4
    assert await queue.claim_batch("spark", 1, 2, "index") == BatchState(2, 1)


async def test_a_batch_is_acknowledged_in_the_commit_that_claims_the_next_one(
    queue: Queue[Any],
) -> None:
    await queue.push_many(specs(*range(5)))
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1, limit=3)
    before = (await queue.stats()).version
    assert await queue.claim_batch("spark", 1, 2, limit=3, acked=1) == BatchState(2, 2, (), 3)
    assert (await queue.stats()).version == before + 1
    assert await queue.claim_batch("spark", 1, 2, limit=3, acked=1) == BatchState(2, 2)
    assert await queue.claim_batch("spark", 1, 3, limit=3, acked=2) == BatchState(3, 0, (), 2)
    assert (await queue.stats()).total("done") == 5


async def test_the_next_batch_is_prepared_while_one_is_open(
    place: Place, queue: Queue[Any]
) -> None:
    await queue.push_many(specs(*range(7)))
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1, limit=2)
    assert await queue.prepare_batch("spark", 1, 2, limit=3) == BatchState(2, 3)
    before = await queue.read_batch("spark", 2)
    assert [job.payload for job in before.jobs] == [2, 3, 4]
    assert [each.prepared for each in await queue.consumers()] == [3]
    async with place.connect() as other:
        assert await other.open_consumer("spark") == ConsumerState("spark", 2, 1, 2, False, 3)
        state = await other.claim_batch("spark", 2, 2, limit=3, acked=1)
        assert state == BatchState(2, 3, (), 2, (), 3)
        after = await other.read_batch("spark", 2)
        assert [job.lease for job in after.jobs] == [job.lease for job in before.jobs]
        assert await other.prepare_batch("spark", 2, 3, limit=3) == BatchState(3, 2)
        assert await other.release_batch("spark", 2, 3) == BatchState(3, 2)
        assert (await other.stats()).counts == {"index": {"done": 2, "running": 3, "queued": 2}}


async def test_the_next_driver_finds_the_identical_set_and_the_older_one_is_fenced(
    place: Place, queue: Queue[Any]
) -> None:
    await queue.push_many(specs(1, 2, 3))
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1, limit=2)
    before = await queue.read_batch("spark", 1)
    async with place.connect() as other:
        assert await other.open_consumer("spark") == ConsumerState("spark", 2, 1, 2)
        assert await other.claim_batch("spark", 2, 1, limit=1) == BatchState(1, 2)
        after = await other.read_batch("spark", 1)
        assert [job.lease for job in after.jobs] == [job.lease for job in before.jobs]
        for ask in (queue.ack_batch, queue.release_batch, queue.claim_batch):
            with pytest.raises(ConsumerFencedError, match="another driver has opened"):
                await ask("spark", 1, 1)
        assert (await other.ack_batch("spark", 2, 1)).jobs == 2


async def test_what_is_lost_is_told(queue: Queue[Any]) -> None:
    await queue.push_many(specs(1, 2))
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1)
    [first, second] = (await queue.read_batch("spark", 1)).jobs
    await queue.complete(first)
    assert await queue.claim_batch("spark", 1, 1) == BatchState(1, 1, (first.id,))
    page = await queue.read_batch("spark", 1)
    assert ([job.id for job in page.jobs], page.lost) == ([second.id], (first.id,))
    assert await queue.ack_batch("spark", 1, 1) == BatchState(1, 1, (first.id,))


async def test_a_released_batch_gives_its_jobs_back(queue: Queue[Any]) -> None:
    await queue.push_many(specs(1, 2))
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1)
    assert await queue.release_batch("spark", 1, 1) == BatchState(1, 2)
    with pytest.raises(InvalidRequestError, match="the next one to claim is 2"):
        await queue.claim_batch("spark", 1, 1)
    assert await queue.claim_batch("spark", 1, 2) == BatchState(2, 2)


async def test_an_empty_claim_writes_nothing(place: Place, queue: Queue[Any]) -> None:
    await queue.open_consumer("spark")
    before = await place.stored()
    assert await queue.claim_batch("spark", 1, 1) == BatchState(1, 0)
    assert (await place.stored()).body == before.body


async def test_consumers_are_listed_and_removed(queue: Queue[Any]) -> None:
    await queue.push("index", 1)
    assert await queue.consumers() == []
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1)
    [listed] = await queue.consumers()
    assert (listed.name, listed.epoch, listed.batch, listed.pending) == ("spark", 1, 1, 1)
    assert await queue.remove_consumer("spark") is True
    assert await queue.remove_consumer("spark") is False
    assert (await queue.stats()).total("queued") == 1
    with pytest.raises(ConsumerFencedError, match="no consumer"):
        await queue.ack_batch("spark", 1, 1)
    with pytest.raises(InvalidRequestError, match="is not open"):
        await queue.read_batch("spark", 1)


async def test_no_answer_reveals_the_secret_of_a_batch(place: Place, queue: Queue[Any]) -> None:
    await queue.push("index", 1)
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1)
    content = json.loads((await place.stored()).body)
    [row] = content["consumers"]
    assert len(row["secret"]) == 32
    shown = repr((await queue.consumers(), await queue.read_batch("spark", 1)))
    assert row["secret"] not in shown


async def test_a_position_is_published_once_in_one_commit(queue: Queue[Any]) -> None:
    assert await queue.publish("sink", 0, specs(1, 2)) is True
    version = (await queue.stats()).version
    assert await queue.publish("sink", 0, specs(1, 2)) is False
    assert (await queue.stats()).version == version
    assert await queue.publish("sink", 0, specs(3), part=1) is True
    assert await queue.publish("sink", 0, specs(4)) is False
    assert await queue.publish("sink", 1, []) is True
    assert await payloads(queue) == [1, 2, 3]


async def test_the_ids_of_published_jobs_follow_from_their_position(queue: Queue[Any]) -> None:
    await queue.publish("sink", 7, specs(1, 2))
    first = [job.id for job in (await queue.jobs()).jobs]
    assert all(len(job_id) == 26 for job_id in first)
    async with bucketq.connect("memory://") as other:
        await other.publish("sink", 7, specs(1, 2))
        await other.publish("sink", 7, specs(3), part=1)
        await other.publish("sink", 8, specs(4, id="own"))
        ids = [job.id for job in (await other.jobs()).jobs]
    assert ids[:2] == first
    assert len(set(ids)) == 4
    assert ids[3] == "own"


async def test_what_is_published_obeys_the_limits_of_a_push(queue: Queue[Any]) -> None:
    await queue.configure(max_batch_jobs=2)
    with pytest.raises(InvalidRequestError, match="max_batch_jobs"):
        await queue.publish("sink", 1, specs(1, 2, 3))
    with pytest.raises(InvalidRequestError, match="JobSpec"):
        await queue.publish("sink", 1, cast("Any", [1]))
    assert await queue.publish("sink", 1, specs(1)) is True


async def test_an_encoded_job_is_published_as_it_is_or_refused_with_all_others(
    queue: Queue[Any],
) -> None:
    encoded = NewJob(
        id="own", kind="index", payload=Raw(b'"eA=="'), payload_encoding="base64", priority=-1
    )
    for wrong in (
        NewJob(id="bad", kind="?", payload=Raw(b"1")),
        NewJob(id="bad", kind="index", payload=Raw(b"1\n2")),
        NewJob(id="own", kind="index", payload=Raw(b"1")),
    ):
        with pytest.raises(RejectedError):
            await queue.publish("sink", 1, [encoded, wrong])
    assert await payloads(queue) == []
    assert await queue.publish("sink", 1, [*specs(1), encoded]) is True
    first, second = (await queue.jobs()).jobs
    assert (first.payload, len(first.id)) == (1, 26)
    assert (second.payload, second.id, second.priority) == (b"x", "own", -1)


async def test_nonsense_is_refused_before_anything_is_sent(queue: Queue[Any]) -> None:
    for ask in (
        lambda: queue.open_consumer(""),
        lambda: queue.claim_batch("spark", 1, 0),
        lambda: queue.claim_batch("spark", 1, 1, lease_s=0),
        lambda: queue.claim_batch("spark", 0, 1),
        lambda: queue.claim_batch("spark", 1, 2, acked=-1),
        lambda: queue.prepare_batch("spark", 1, 0),
        lambda: queue.read_batch("spark", -1),
        lambda: queue.ack_batch("spark", 1, 2**63),
        lambda: queue.release_batch("", 1, 1),
        lambda: queue.remove_consumer(""),
        lambda: queue.publish("", 1, []),
        lambda: queue.publish("sink", -1, []),
        lambda: queue.publish("sink", 1, [], part=-1),
        lambda: queue.claim(lease_s=8 * 86400),
    ):
        with pytest.raises(InvalidRequestError):
            await ask()


async def test_a_request_belongs_to_the_verb_that_raised_the_error(queue: Queue[Any]) -> None:
    other = "push.01J00000000000000000000000.1.0"
    for ask in (
        lambda: queue.open_consumer("spark", request=other),
        lambda: queue.ack_batch("spark", 1, 1, request=other),
        lambda: queue.publish("sink", 1, [], request=other),
    ):
        with pytest.raises(InvalidRequestError, match="belongs to a push"):
            await ask()


async def test_a_claim_may_have_a_lease_of_its_own_length(queue: Queue[Any]) -> None:
    await queue.push_many(specs(1, 2))
    [long] = await queue.claim(lease_s=3600)
    [usual] = await queue.claim()
    assert (long.lease_s, usual.lease_s) == (3600.0, None)
    await queue.complete(long)
    assert (await queue.get(long.id)).lease_s is None


async def test_jobs_of_a_silent_driver_are_taken_back_by_the_next(queue: Queue[Any]) -> None:
    await queue.configure(clock_margin_s=0, grace_s=0)
    await queue.push_many(specs(1, 2))
    await queue.open_consumer("spark")
    await queue.claim_batch("spark", 1, 1, lease_s=0.05)
    before = (await queue.read_batch("spark", 1)).jobs
    async with asyncio.timeout(SOON_S):
        while (await queue.stats()).total("running"):
            assert await queue.claim("none") == []
            await asyncio.sleep(0.05)
    assert await queue.claim_batch("spark", 1, 1) == BatchState(1, 2)
    after = (await queue.read_batch("spark", 1)).jobs
    assert [(job.id, job.attempt) for job in after] == [(job.id, 2) for job in before]


async def test_a_lease_that_is_longer_than_the_setting_outlasts_it(queue: Queue[Any]) -> None:
    await queue.configure(lease_s=0.05, heartbeat_s=0.01, grace_s=0, clock_margin_s=0)
    await queue.push_many(specs(1, 2))
    await queue.claim("index", lease_s=600)
    [short] = await queue.claim("index")
    again = await queue.claim("index", wait_s=SOON_S, lease_s=600)
    assert [job.id for job in again] == [short.id]
    assert not await queue.claim("index")

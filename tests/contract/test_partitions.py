"""What queues with partitions promise, beside the contract of all queues."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import bucketq
from bucketq import InvalidRequestError, JobSpec, Queue
from bucketq.clock import SystemClock
from bucketq.commit.bulk_write import BulkWrite
from bucketq.model.base import NewJob
from bucketq.model.partitions import partition_of
from bucketq.store.url import open_store
from tests.contract.across_partitions import CONSUMER, HISTORY, NOT_ACROSS, ORDER
from tests.contract.brokers import Brokers
from tests.contract.places import AddressPlace, Place, in_a_file, in_memory
from tests.contract.smoke import VERBS

OTHERWISE = {
    **dict.fromkeys(("push",), ORDER),
    **dict.fromkeys(
        ("open_consumer", "claim_batch", "prepare_batch", "read_batch", "ack_batch"), CONSUMER
    ),
    **dict.fromkeys(
        ("release_batch", "settle_batch", "consumers", "remove_consumer", "publish"), CONSUMER
    ),
    **dict.fromkeys(("changes", "history_range", "version_at", "forget_history"), HISTORY),
    **dict.fromkeys(("limit", "limits", "unlimit"), "limits of kinds are refused; see below"),
}
"""Verbs whose smoke test does not hold across partitions, and why."""


@pytest.fixture
def four() -> Place:
    return in_memory("embedded", "?partitions=4")


@pytest.fixture
async def queue(four: Place) -> AsyncIterator[Queue[Any]]:
    async with four.connect() as opened:
        yield opened


async def groups_of_all(queue: Queue[Any], count: int = 4) -> list[str]:
    """Push a job to each partition, and return their groups."""
    found: dict[int, str] = {}
    for number in range(1000):
        job_id = await queue.push("probe", number, group=f"g{number}")
        found.setdefault(partition_of(job_id, count), f"g{number}")
        if len(found) == count:
            break
    for job in await queue.claim(limit=1000):
        await queue.complete(job)
    return [found[index] for index in range(count)]


def new_job(group: str) -> NewJob:
    return NewJob(id="next", kind="next", payload=Raw(b"2"), group=group)


@pytest.mark.parametrize("verb", [name for name in VERBS if name not in OTHERWISE])
async def test_a_verb_takes_effect_across_partitions(four: Place, verb: str) -> None:
    async with four.connect() as queue, Place(four.url, "direct").connect() as other:
        await VERBS[verb](queue, other)


def test_every_exception_to_the_contract_names_a_test() -> None:
    for module, tests in NOT_ACROSS.items():
        tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
        defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert tests.keys() - {"*"} <= defined


async def test_jobs_of_a_group_are_in_one_partition_and_in_order(queue: Queue[Any]) -> None:
    groups = [f"tenant-{number}" for number in range(5)]
    specs = [JobSpec(kind="mail", payload=n, group=groups[n % 5]) for n in range(50)]
    ids = await queue.push_many(specs)
    seen: dict[str, list[int]] = {}
    while jobs := await queue.claim(limit=3):
        for job in jobs:
            seen.setdefault(str(job.group), []).append(job.payload)
            await queue.complete(job)
    assert seen == {group: [*range(n, 50, 5)] for n, group in enumerate(groups)}
    for group in range(5):
        assert len({partition_of(each, 4) for each in ids[group::5]}) == 1


async def test_claims_are_fair_to_partitions(queue: Queue[Any]) -> None:
    first, second, *_ = await groups_of_all(queue)
    for group in (first, second):
        await queue.push_many([JobSpec(kind="mail", payload=n, group=group) for n in range(40)])
    taken = Counter([str((await queue.claim())[0].group) for _ in range(40)])
    assert taken == {first: 20, second: 20}


async def test_a_hot_partition_does_not_hide_the_others(queue: Queue[Any]) -> None:
    hot, *others = await groups_of_all(queue)
    await queue.push_many([JobSpec(kind="mail", payload=n, group=hot) for n in range(60)])
    for _ in range(10):
        assert (await queue.claim())[0].group == hot
    for group in others:
        await queue.push("mail", 0, group=group)
    taken = [(await queue.claim())[0].group for _ in range(12)]
    assert set(others) <= set(taken)


async def test_a_waiting_claim_wakes_for_any_partition(queue: Queue[Any]) -> None:
    for group in await groups_of_all(queue):
        waiting = asyncio.create_task(queue.claim(wait_s=30))
        await asyncio.sleep(0.02)
        job_id = await queue.push("mail", 1, group=group)
        assert [job.id for job in await waiting] == [job_id]


@pytest.fixture(params=["embedded", "broker"])
async def either(
    request: pytest.FixtureRequest, four: Place, tmp_path: Path, brokers: Brokers
) -> AsyncIterator[Queue[Any]]:
    """A queue that commits by itself, and one of a broker, which knows callers from afar."""
    place = four
    if request.param == "broker":
        place = AddressPlace(f"{in_a_file(tmp_path)}?partitions=4", "auto", brokers)
    async with place.connect() as opened:
        yield opened
    brokers.stop(place.url)


async def test_a_claim_leaves_nothing_claimed_that_it_does_not_return(either: Queue[Any]) -> None:
    queue, groups = either, await groups_of_all(either)
    for _ in range(5):
        waiting = [asyncio.create_task(queue.claim(wait_s=30)) for _ in range(3)]
        await asyncio.sleep(0.01)
        # All partitions have jobs at once, for more claims than are waiting in each.
        await queue.push_many([JobSpec(kind="mail", payload=0, group=group) for group in groups])
        jobs = [job for claim in waiting for job in await claim]
        assert len(jobs) == 3
        await queue.complete_many(jobs)
        (last,) = await queue.claim(wait_s=30)
        await queue.complete(last)
        assert (await queue.stats()).total("running") == 0


async def test_a_cancelled_claim_is_undone_in_all_partitions(either: Queue[Any]) -> None:
    queue, groups = either, await groups_of_all(either)
    for pause_s in (0.0, 0.001, 0.01):
        await queue.push_many([JobSpec(kind="mail", payload=0, group=group) for group in groups])
        claim = asyncio.create_task(queue.claim(limit=4, wait_s=30))
        await asyncio.sleep(pause_s)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        jobs = [] if claim.cancelled() else claim.result()
        while len(jobs) < 4:
            jobs += await queue.claim(limit=4, wait_s=30)
        assert len({job.id for job in jobs}) == 4
        await queue.complete_many(jobs)


async def test_a_claim_fills_up_from_several_partitions(queue: Queue[Any]) -> None:
    groups = await groups_of_all(queue)
    await queue.push_many([JobSpec(kind="mail", payload=0, group=group) for group in groups])
    jobs = await queue.claim(limit=3)
    assert len(jobs) == 3
    assert (await queue.stats()).total("running") == 3
    assert await queue.complete_many(jobs) == [True] * 3


async def test_a_job_is_found_whatever_decides_its_partition(queue: Queue[Any]) -> None:
    group = (await groups_of_all(queue))[2]
    for number in range(4):
        job_id = await queue.push("mail", number, id=f"own-{number}", group=group)
        assert (await queue.get(job_id)).payload == number
    assert await queue.cancel("own-0") == "cancelled"
    with pytest.raises(bucketq.JobNotFoundError):
        await queue.get("own-9")


async def test_a_repeated_push_has_the_same_ids(queue: Queue[Any]) -> None:
    token = "push.01J00000000000000000000000.1.0.1700000000000"
    specs = [JobSpec(kind="mail", payload=n, group=f"g{n % 3}") for n in range(9)]
    first = await queue.push_many(specs, request=token)
    assert await queue.push_many(specs, request=token) == first
    assert (await queue.stats()).total("queued") == 9


async def test_keys_and_unique_names_hold_for_the_whole_queue(queue: Queue[Any]) -> None:
    first = await queue.push("mail", 1, key="k")
    again = await queue.push("mail", 1, key="k")
    assert (again, again.duplicate) == (first, True)
    first = await queue.push("mail", 1, unique="u")
    again = await queue.push("mail", 2, unique="u")
    assert (again, again.duplicate) == (first, True)


async def test_a_follow_up_is_in_the_partition_of_its_job(queue: Queue[Any]) -> None:
    for group in await groups_of_all(queue):
        await queue.push("mail", 1, group=group)
        (job,) = await queue.claim()
        (follower,) = await queue.complete(job, push=[JobSpec(kind="next", payload=2)])
        assert partition_of(follower, 4) == partition_of(job.id, 4)
        (next_job,) = await queue.claim()
        assert next_job.id == follower
        await queue.complete(next_job)


async def test_a_follow_up_of_another_partition_is_refused(queue: Queue[Any]) -> None:
    first, second, *_ = await groups_of_all(queue)
    await queue.push("mail", 1, group=first)
    (job,) = await queue.claim()
    with pytest.raises(InvalidRequestError, match="in one partition"):
        await queue.complete(job, push=[JobSpec(kind="next", payload=2, group=second)])
    with pytest.raises(InvalidRequestError, match="in one partition"):
        await queue.complete_many([(job, None, (new_job(second),))])
    await queue.complete(job, push=[JobSpec(kind="next", payload=2, group=first)])


async def test_batches_and_links_are_within_a_partition(queue: Queue[Any]) -> None:
    groups = await groups_of_all(queue)
    async with queue.batch(JobSpec(kind="sum", payload=0)) as batch:
        ids = [await batch.push("mail", number) for number in range(5)]
    assert len({partition_of(each, 4) for each in ids}) == 1
    one, other = [await queue.push("mail", 1, group=group) for group in groups[:2]]
    with pytest.raises(InvalidRequestError, match="partition"):
        await queue.push("index", 1, after=[one, other])
    held = await queue.push("index", 1, after=[one])
    assert partition_of(held, 4) == partition_of(one, 4)


async def test_limits_of_groups_hold_and_those_of_kinds_are_refused(queue: Queue[Any]) -> None:
    with pytest.raises(InvalidRequestError, match="limit groups"):
        await queue.limit(kind="mail", running=1)
    groups = await groups_of_all(queue)
    await queue.limit(group="*", running=1)
    await queue.limit(group=groups[1], running=2)
    assert {(each.target, each.running) for each in await queue.limits()} == {
        ("group=*", 1),
        (f"group={groups[1]}", 2),
    }
    for group in groups:
        await queue.push_many([JobSpec(kind="mail", payload=n, group=group) for n in range(3)])
    taken = Counter(str(job.group) for job in await queue.claim(limit=20))
    assert taken == {group: 2 if group == groups[1] else 1 for group in groups}
    assert await queue.unlimit(group=groups[1]) is True


async def test_schedules_live_in_partition_0(queue: Queue[Any]) -> None:
    groups = await groups_of_all(queue)
    await queue.schedule("nightly", "report", 1, every_s=3600)
    with pytest.raises(InvalidRequestError, match="partition"):
        await queue.schedule("other", "report", 1, every_s=3600, group=groups[1])
    assert [each.name for each in await queue.schedules()] == ["nightly"]
    job_id = await queue.run_schedule("nightly")
    assert (await queue.get(job_id)).kind == "report"


async def test_a_job_can_wait_for_one_that_the_queue_has_pushed_itself(queue: Queue[Any]) -> None:
    await queue.schedule("nightly", "report", 1, every_s=3600)
    for _ in range(5):
        run = await queue.run_schedule("nightly")
        assert partition_of(run, 4) == 0
        await queue.push("after", 1, after=[run])
        async with queue.batch(JobSpec(kind="sum", payload=0)) as batch:
            pass
        callback = (await queue.get_batch(batch.id)).callback
        assert callback is not None
        await queue.push("after", 1, after=[callback])


async def test_an_id_that_looks_like_a_group_does_not_decide_for_it(queue: Queue[Any]) -> None:
    for group in await groups_of_all(queue):
        named = JobSpec(kind="mail", payload=1, id=f"group={group}")
        ids = await queue.push_many([named, JobSpec(kind="mail", payload=2, group=group)])
        alone = await queue.push("mail", 3, group=group)
        assert partition_of(ids[1], 4) == partition_of(alone, 4)


async def test_what_belongs_to_one_object_is_refused(queue: Queue[Any]) -> None:
    with pytest.raises(InvalidRequestError, match="has 4 partitions"):
        await queue.open_consumer("spark")
    with pytest.raises(InvalidRequestError, match="has 4 partitions"):
        await queue.publish("spark", 1, [JobSpec(kind="mail", payload=1)])
    with pytest.raises(InvalidRequestError, match="has 4 partitions"):
        await queue.history_range()
    with pytest.raises(InvalidRequestError, match="history_retention_s is about one object"):
        await queue.configure(history_retention_s=3600)


@pytest.mark.parametrize("mode", ["direct", "embedded", "auto"])
async def test_the_number_of_partitions_is_fixed(tmp_path: Path, mode: Any) -> None:
    url = in_a_file(tmp_path)
    async with bucketq.connect(f"{url}?partitions=2", mode=mode) as queue:
        await queue.push("mail", 1)
    for wrong in ("3", "1"):
        with pytest.raises(InvalidRequestError, match="has 2 partitions"):
            async with bucketq.connect(f"{url}?partitions={wrong}", mode=mode):
                pass
    async with bucketq.connect(url, mode=mode) as queue:
        assert (await queue.stats()).partitions == 2
    plain = (tmp_path / "plain.json").as_uri()
    async with bucketq.connect(plain, mode=mode) as queue:
        await queue.push("mail", 1)
    with pytest.raises(InvalidRequestError, match="has no partitions"):
        async with bucketq.connect(f"{plain}?partitions=2", mode=mode):
            pass


async def test_a_partition_of_another_queue_is_refused(tmp_path: Path) -> None:
    url = in_a_file(tmp_path)
    async with bucketq.connect(f"{url}?partitions=2", mode="direct"):
        pass
    (tmp_path / "queue.json").unlink()
    with pytest.raises(InvalidRequestError, match="left over"):
        async with bucketq.connect(f"{url}?partitions=2", mode="direct"):
            pass
    part = (tmp_path / "queue" / "partitions" / "1" / "partition.json").as_uri()
    with pytest.raises(InvalidRequestError, match="address of the queue itself"):
        async with bucketq.connect(part, mode="direct"):
            pass


async def test_pages_go_through_the_partitions(queue: Queue[Any]) -> None:
    ids = {await queue.push("mail", number) for number in range(30)}
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await queue.jobs(after=after, limit=4)
        seen += [job.id for job in page.jobs]
        after = page.next_after
    assert len(seen) == 30
    assert set(seen) == ids


async def test_a_bulk_write_is_refused(tmp_path: Path) -> None:
    url = in_a_file(tmp_path)
    async with bucketq.connect(f"{url}?partitions=2", mode="direct"):
        pass
    location = open_store(url)
    place = (location.store, location.key, location.url)
    with pytest.raises(InvalidRequestError, match="without partitions only"):
        async with BulkWrite(*place, SystemClock(), timeout_s=10):
            pass
    await location.store.close()


async def test_a_worker_works_on_all_partitions(tmp_path: Path) -> None:
    url = in_a_file(tmp_path)
    worker = bucketq.Worker(url, mode="direct")
    seen: list[int] = []

    @worker.handler("mail")
    async def mail(number: int, context: bucketq.Context) -> int:
        seen.append(number)
        if number < 8:
            await context.push("mail", number + 100)
        return number

    async with bucketq.connect(f"{url}?partitions=4", mode="direct") as queue:
        ids = [await queue.push("mail", number, group=f"g{number}") for number in range(8)]
        await worker.run(burst=True)
        assert sorted(seen) == [*range(8), *range(100, 108)]
        assert [await queue.wait(job_id) for job_id in ids] == [*range(8)]


@pytest.mark.parametrize("mode", ["direct", "embedded", "auto"])
async def test_clients_that_create_a_queue_at_once_get_the_same_one(
    tmp_path: Path, mode: Any
) -> None:
    url = f"{in_a_file(tmp_path)}?partitions=3"

    async def push(number: int) -> str:
        async with bucketq.connect(url, mode=mode) as queue:
            return await queue.push("mail", number)

    ids = await asyncio.gather(*map(push, range(6)))
    async with bucketq.connect(url, mode="direct") as queue:
        assert {job.id for job in (await queue.jobs()).jobs} == set(ids)

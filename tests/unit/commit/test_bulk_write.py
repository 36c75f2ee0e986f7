"""Bulk writes: segments are put first, and one commit adopts them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

import pytest
from msgspec import Raw

from bucketq.codec.pushed_rows import pushed_row
from bucketq.codec.segment_file import encode_segment, sort_rows
from bucketq.commit.bulk_write import BulkWrite, Reservation, new_name, put_reserved
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.request_ids import RequestId
from bucketq.commit.upkeep.segment_upkeep import SegmentUpkeep
from bucketq.errors import CorruptStateError, InvalidRequestError, JobNotFoundError, RejectedError
from bucketq.model.base import NewJob
from bucketq.model.operations import Request
from bucketq.model.reservations import RenewReservation
from bucketq.model.segments import SegmentRecord
from bucketq.testing import SimulatedClock, VirtualLoop, run
from tests.compat.adopted_rows import consecutive
from tests.unit.commit.test_deep_queues import KEY, Deep

RETENTION_S = 60.0


class Bulk(Deep):
    """A store, and bulk writes to a queue in it."""

    async def begin(self, **settings: Any) -> None:
        await self.create(**settings)
        self.clock = SimulatedClock(self.loop)

    def writing(self, name: str = "bulk") -> BulkWrite:
        return BulkWrite(self.store.connect(name), KEY, "queue", self.clock)

    async def put(
        self, folder: SegmentFolder, reservation: Reservation, start: int, count: int = 10
    ) -> SegmentRecord:
        numbers = range(start, start + count)
        jobs = [NewJob(id=f"job-{n}", kind="k", payload=Raw(b"%d" % n)) for n in numbers]
        rows = sort_rows("ready", [pushed_row(job, n) for n, job in enumerate(jobs)])
        encoded = encode_segment("ready", rows)
        return await put_reserved(folder, reservation, encoded, self.clock)

    async def sweep(self) -> int:
        register = Register(self.store.connect("sweeper"), KEY, "queue", self.clock)
        await register.load()
        return await SegmentUpkeep(_submit_nothing, register, self.clock).sweep()


async def _submit_nothing(_request: Request) -> None:
    message = "a sweep commits nothing"
    raise AssertionError(message)


async def put_consecutive(
    deep: Bulk,
    bulk: BulkWrite,
    reservation: Reservation,
    kinds: str,
    first: str = "",
    *,
    start: int = 0,
) -> tuple[list[str], SegmentRecord]:
    """Put a job of each kind, with ids that a request makes; ``first`` is another first id."""
    made = RequestId("01M7F5B2YZ8Q4X1VJ6T3N9KDAE", 3).job_ids()
    ids = [*islice(made, start, start + len(kinds))]
    jobs = [
        NewJob(id=each, kind=kind, payload=Raw(b"1")) for each, kind in zip(ids, kinds, strict=True)
    ]
    rows = sort_rows("ready", [consecutive(pushed_row(job, n)) for n, job in enumerate(jobs)])
    encoded = encode_segment("ready", rows, first or ids[0])
    return ids, await put_reserved(bulk.folder, reservation, encoded, deep.clock)


def test_jobs_whose_ids_follow_each_other_are_found_without_hashes() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            ids, record = await put_consecutive(deep, bulk, reservation, "k" * 2000)
            assert await bulk.adopt(reservation, "w", 0, [record])
        assert "consecutive-rows" in (await deep.head()).requires
        async with deep.open(GroupCommitter) as queue:
            assert [job.id for job in await queue.claim(limit=3)] == ids[:3]
            for place in (3, 1023, 1024, 1999):
                job = await queue.get(ids[place])
                assert (job.id, job.status) == (ids[place], "queued")
            assert (await queue.push("k", 1, id=ids[1500])).duplicate
            assert await queue.cancel(ids[1500]) == "cancelled"
            before, after = RequestId("01M7F5B2YZ8Q4X1VJ6T3N9KDAE", 3), ids[7].lower()
            for other in (before.job_id(2000), before.job_id(-1), after, "9" * 26, ids[7] + "0"):
                with pytest.raises(JobNotFoundError):
                    await queue.get(other)
                assert not (await queue.push("k", 1, id=other)).duplicate

    run(main)


def test_segments_with_the_same_lines_have_the_names_of_their_ids() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            put = [
                await put_consecutive(deep, bulk, reservation, "k" * 5, start=start)
                for start in (0, 5)
            ]
            assert await bulk.adopt(reservation, "w", 0, [record for _, record in put])
        async with deep.open(GroupCommitter) as queue:
            claimed = await queue.claim(limit=20)
            assert [job.id for job in claimed] == [each for ids, _ in put for each in ids]
            assert [job.record.seq for job in claimed] == [*range(1, 11)]
            assert {job.payload for job in claimed} == {1}

    run(main)


@pytest.mark.parametrize(("kinds", "first"), [("kkk", "job-1"), ("klk", "")])
def test_a_first_id_that_says_nothing_about_the_others_is_refused(kinds: str, first: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            _, record = await put_consecutive(deep, bulk, reservation, kinds, first)
            with pytest.raises(InvalidRequestError, match="cannot have a first_id"):
                await bulk.adopt(reservation, "w", 0, [record])

    run(main)


def test_a_bulk_write_is_one_commit_and_is_claimed_in_order() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            records = [await deep.put(bulk.folder, reservation, n) for n in (0, 10, 20)]
            assert await deep.sweep() == 0
            version = (await deep.head()).version
            assert await bulk.adopt(reservation, "w", 0, records)
            assert (await deep.head()).version == version + 1
            assert not await bulk.adopt(reservation, "w", 0, records)
            assert await bulk.reserve("w", 0) is None
        async with deep.open(GroupCommitter) as queue:
            assert (await queue.stats()).counts == {"k": {"queued": 30}}
            assert [job.payload for job in await queue.claim(limit=99)] == [*range(30)]

    run(main)


def test_what_was_put_is_swept_once_its_reservation_is_gone() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            await deep.put(bulk.folder, reservation, 0)
            assert await deep.sweep() == 0
            await bulk.abandon(reservation)
            assert await deep.sweep() == 1
            late = await deep.put(bulk.folder, reservation, 0)
            with pytest.raises(RejectedError, match="not listed any more"):
                await bulk.adopt(reservation, "w", 0, [late])
            assert await deep.sweep() == 1

    run(main)


def test_a_sweeper_that_read_before_the_reservation_deletes_nothing() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        register = Register(deep.store.connect("sweeper"), KEY, "queue", deep.clock)
        await register.load()
        before = await register.read_named()

        async def read_before() -> Any:
            return before

        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            record = await deep.put(bulk.folder, reservation, 0)
            assert await register.segments.folder.sweep(read_before) == 0
            assert await bulk.adopt(reservation, "w", 0, [record])
            assert await deep.sweep() == 0

    run(main)


def test_a_reservation_is_renewed_while_its_writer_works_and_expires_after_it() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin(reservation_retention_s=RETENTION_S)
        async with deep.open(DirectCommitter) as queue:
            async with deep.writing() as bulk:
                reservation = await bulk.reserve("w", 0)
                assert reservation is not None
                record = await deep.put(bulk.folder, reservation, 0)
                for number in range(4):
                    await asyncio.sleep(RETENTION_S)
                    await queue.push("k", number)
                assert len((await deep.head()).reservations) == 1
                assert await deep.sweep() == 0
            for number in range(4):
                await asyncio.sleep(RETENTION_S)
                await queue.push("k", number)
            assert len((await deep.head()).reservations) == 0
            assert await deep.sweep() == 1
        async with deep.writing() as bulk:
            with pytest.raises(RejectedError):
                await bulk.adopt(reservation, "w", 0, [record])

    run(main)


def test_the_writer_that_reserved_last_adopts() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing("one") as one, deep.writing("two") as two:
            first = await one.reserve("w", 0)
            assert first is not None
            old = await deep.put(one.folder, first, 0)
            second = await two.reserve("w", 0)
            assert second is not None
            new = await deep.put(two.folder, second, 0)
            with pytest.raises(RejectedError):
                await one.adopt(first, "w", 0, [old])
            assert await two.adopt(second, "w", 0, [new])
            assert not await one.adopt(first, "w", 0, [old])
            assert (await deep.head()).cold.rows.count("ready") == 10
            assert await deep.sweep() == 1

    run(main)


def test_processes_that_share_a_name_write_for_one_adoption() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin(reservation_retention_s=RETENTION_S)
        name = new_name(deep.clock)
        async with deep.writing("driver") as driver, deep.open(DirectCommitter) as queue:
            records = []
            for number in range(3):
                async with deep.writing(f"executor-{number}") as bulk:
                    reservation = await bulk.reserve("w", 0, name=name)
                    assert reservation is not None
                    await asyncio.sleep(2 * RETENTION_S)
                    await queue.push("k", number)
                    records.append(await deep.put(bulk.folder, reservation, 10 * number))
            shared = await driver.reserve("w", 0, name=name)
            assert shared is not None
            assert shared == reservation
            assert await driver.adopt(shared, "w", 0, records)
            assert await driver.reserve("w", 0, name=name) is None
        assert (await deep.head()).cold.rows.count("ready") == 30

    run(main)


def test_what_a_writer_has_reserved_is_given_up_by_its_name() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing() as bulk:
            assert await bulk.reserve("w", 0) is not None
        async with deep.writing() as bulk:
            await bulk.clear("w", "0" * 16)
            await bulk.clear("other")
            assert len((await deep.head()).reservations) == 1
            await bulk.clear("w")
            assert len((await deep.head()).reservations) == 0

    run(main)


def test_a_segment_that_is_missing_or_damaged_is_not_adopted() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            records = [await deep.put(bulk.folder, reservation, n) for n in (0, 10)]
            (first, second) = sorted(await deep.segments())
            body = (await deep.store.connect("reader").get(first)).body
            deep.store.overwrite(first, body[:-20] + b"x" * 20)
            with pytest.raises(CorruptStateError):
                await bulk.adopt(reservation, "w", 0, records)
        async with deep.writing() as bulk:
            deep.store.overwrite(first, body)
            deep.store.remove(second)
            with pytest.raises(RejectedError, match="missing"):
                await bulk.adopt(reservation, "w", 0, records)
            assert (await deep.head()).cold.rows.count("ready") == 0

    run(main)


def test_a_broker_of_the_queue_serves_what_was_adopted_beside_it() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        async with deep.open(GroupCommitter) as queue, deep.writing() as bulk:
            claiming = asyncio.create_task(queue.claim(limit=99, wait_s=60))
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            records = [await deep.put(bulk.folder, reservation, 0)]
            assert await bulk.adopt(reservation, "w", 0, records)
            assert [job.payload for job in await claiming] == [*range(10)]

    run(main)


def test_a_renewal_that_fails_is_logged_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin(reservation_retention_s=RETENTION_S)
        async with deep.writing() as bulk:
            reservation = await bulk.reserve("w", 0)
            assert reservation is not None
            submit, failures = bulk._submit, list[object]()

            async def fail_once(operation: Any) -> Any:
                if isinstance(operation, RenewReservation) and not failures:
                    failures.append(operation)
                    raise RejectedError("no")
                return await submit(operation)

            bulk._submit = fail_once  # type: ignore[method-assign]
            await asyncio.sleep(2 * RETENTION_S)
            assert "cannot be renewed" in caplog.text
            record = await deep.put(bulk.folder, reservation, 0)
            assert await bulk.adopt(reservation, "w", 0, [record])

    run(main)


class _KilledError(BaseException):
    """The process ends here."""


def die_at(link: Any, step: int, when: str) -> None:
    """Let the process that uses a link to the store end at one of its writes."""
    steps = list[str]()

    def mortal(write: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        async def write_or_die(*args: Any) -> str:
            steps.append("write")
            if len(steps) == step and when == "before":
                raise _KilledError
            answer = await write(*args)
            if len(steps) == step:
                raise _KilledError
            return answer

        return write_or_die

    link.create, link.replace = mortal(link.create), mortal(link.replace)


async def write_all(deep: Bulk, bulk: BulkWrite) -> bool:
    reservation = await bulk.reserve("w", 0)
    if reservation is None:
        return False
    records = [await deep.put(bulk.folder, reservation, n) for n in (0, 10)]
    return await bulk.adopt(reservation, "w", 0, records)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_writer_that_is_killed_at_any_step_is_repeated_to_the_same_effect(
    step: int, when: str
) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Bulk(loop)
        await deep.begin()
        link = deep.store.connect("bulk")
        die_at(link, step, when)
        with pytest.raises(_KilledError):
            async with BulkWrite(link, KEY, "queue", deep.clock) as bulk:
                await write_all(deep, bulk)
        adopted = (step, when) == (4, "after")
        assert (await deep.head()).cold.rows.count("ready") == (20 if adopted else 0)
        assert await deep.sweep() == 0, "it may still be adopted, or nothing is left"
        async with deep.writing() as bulk:
            assert await write_all(deep, bulk) is not adopted
        async with deep.open(GroupCommitter) as queue:
            assert [job.payload for job in await queue.claim(limit=99)] == [*range(20)]
        await deep.sweep()
        left = {key.rpartition("/")[2] for key in await deep.segments()}
        named = {f"{name}.jsonl" for name in (await deep.head()).cold.rows.names()}
        assert {name for name in left if name.startswith("r")} <= named

    run(main)

"""Queues whose waiting jobs are in segments: the same answers, and a small object."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.codec.decode import decode
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects import segment_parts
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_policy import DEFAULT_POLICY, SegmentPolicy
from bucketq.errors import (
    ClosedError,
    JobNotFoundError,
    UnavailableError,
)
from bucketq.model.state import State
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, VirtualLoop, run

KEY = "queue.json"
SPILL_BYTES = 2000
QUEUES = [DirectCommitter, GroupCommitter]


class Deep:
    """A store, and queues over it that spill early."""

    def __init__(self, loop: VirtualLoop, policy: SegmentPolicy = DEFAULT_POLICY) -> None:
        self.loop = loop
        self.store = SimulatedStore(loop)
        self._policy = policy

    def open(self, queue_type: type[Any], name: str = "link") -> Queue[Any]:
        clock = SimulatedClock(self.loop)
        register = Register(self.store.connect(name), KEY, "queue", clock)
        register.segments.policy = self._policy
        return Queue(queue_type(register, clock), clock)

    async def create(self, **settings: Any) -> None:
        async with self.open(DirectCommitter, "creator") as queue:
            await queue.configure(spill_bytes=SPILL_BYTES, **settings)

    async def head(self) -> State:
        return decode((await self.store.connect("reader").get(KEY)).body, "queue").state

    async def segments(self) -> list[str]:
        listed = self.store.connect("reader").list("queue/segments/")
        return [info.key async for info in listed]


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_deep_queue_is_worked_off_in_order(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            ids = []
            for start in range(0, 600, 20):
                ids += await queue.push_many(
                    [JobSpec(kind="k", payload=number) for number in range(start, start + 20)]
                )
                await asyncio.sleep(1)
            head = await deep.head()
            assert head.size_bytes < 4 * SPILL_BYTES + 4000
            assert head.cold.rows.segments
            assert (await queue.stats()).counts == {"k": {"queued": 600}}
            assert (await queue.get(ids[3])).payload == 3
            got = []
            while jobs := await queue.claim(limit=7):
                got += [job.id for job in jobs]
                assert all(await queue.complete_many(jobs))
            assert got == ids

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_priorities_delays_and_cancels_hold_in_segments(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            expected = []
            for number in range(120):
                priority, delay_s = number % 3, 500.0 if number % 5 == 0 else None
                job = await queue.push("k", number, priority=priority, delay_s=delay_s)
                expected.append((delay_s or 0.0, priority, number, job))
            await asyncio.sleep(10)
            assert len((await deep.head()).cold.rows.segments) >= 2
            cancelled = {job for *_, number, job in expected if number % 7 == 0}
            for job in cancelled:
                assert await queue.cancel(job) == "cancelled"
            now = [each[-1] for each in sorted(expected) if not each[0]]
            later = [each[-1] for each in sorted(expected) if each[0]]
            got = [job.id for job in await queue.claim(limit=1000)]
            assert got == [job for job in now if job not in cancelled]
            assert await queue.claim(limit=1000) == []
            await asyncio.sleep(600)
            got = [job.id for job in await queue.claim(limit=1000)]
            assert got == [job for job in later if job not in cancelled]

    run(main)


def test_a_parked_claim_gets_a_delayed_job_from_a_segment() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            for number in range(100):
                await queue.push("k", number, delay_s=300)
            await asyncio.sleep(5)
        async with deep.open(GroupCommitter) as queue:
            began = loop.time()
            (job,) = await queue.claim(wait_s=1000)
            assert job.payload == 0
            assert loop.time() - began < 310

    run(main)


def test_a_parked_claim_waits_for_rows_that_are_being_read_beyond_its_time() -> None:
    """The job was there all the while; that storage is slow does not make it none."""

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(GroupCommitter) as queue, deep.open(DirectCommitter) as other:
            link = queue._committer._register._store  # type: ignore[attr-defined]
            read = link.get_range

            async def read_slowly(*given: Any) -> bytes:
                await asyncio.sleep(8)
                return bytes(await read(*given))

            link.get_range = read_slowly
            claim = loop.create_task(queue.claim(wait_s=5))
            await asyncio.sleep(2)
            await other.push_many([JobSpec(kind="k", payload="x" * 1000)] * 5)
            assert (await deep.head()).cold.rows.segments
            assert len(await claim) == 1

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_an_unknown_job_is_not_found_in_segments(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            for number in range(100):
                await queue.push("k", number)
            await asyncio.sleep(5)
            with pytest.raises(JobNotFoundError):
                await queue.get("nowhere")
            with pytest.raises(JobNotFoundError):
                await queue.cancel("nowhere")

    run(main)


def test_segments_that_are_named_no_more_are_deleted() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            for number in range(500):
                await queue.push("k", number)
            await asyncio.sleep(30)
            merged = set((await deep.head()).cold.rows.segments)
            assert len(await deep.segments()) > len(merged)
            for _ in range(1100):
                (job,) = await queue.claim()
                await queue.release(job)
            await asyncio.sleep(4000)
            left = {key.rpartition("/")[2] for key in await deep.segments()}
            named = {f"{name}.jsonl" for name in (await deep.head()).cold.rows.segments}
            assert left == named

    run(main)


def test_the_storage_has_as_long_to_answer_as_the_object_needs() -> None:
    """Or a leader of a deep queue would notice minutes late that it is cut off."""

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        clock = SimulatedClock(loop)
        register = Register(deep.store.connect("link"), KEY, "queue", clock)
        async with Queue[Any](GroupCommitter(register, clock), clock) as queue:
            await queue.configure(inline_bytes=1 << 20)
            for _ in range(40):
                await queue.push("k", "x" * 100_000)
                await asyncio.sleep(1)
            stats = await queue.stats()
            assert stats.segment_bytes > 3_000_000
            assert register.patience_s < 10.5

    run(main)


@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "damaged"])
@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_segment_that_cannot_be_read_stops_only_its_own_jobs(
    queue_type: type[Any], is_missing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            ids = [await queue.push("k", number) for number in range(140)]
            await asyncio.sleep(5)
        named = list((await deep.head()).cold.rows.segments.values())
        lost = max(named, key=lambda segment: segment.live)
        assert len(named) > 1
        link = deep.store.connect("vandal")
        (key,) = [key for key in await deep.segments() if lost.record.id in key]
        body = (await link.get(key)).body
        its_own = [job for job in ids if job.encode() in body]
        await link.delete(key)
        if not is_missing:
            await link.create(key, body.replace(b'"queued"', b'"qweued"'))
        async with deep.open(queue_type) as queue:
            got = [job.id for job in await queue.claim(limit=1000)]
            assert got == [job for job in ids if job not in its_own]
            await queue.push("third", 1)
            (job,) = await queue.claim()
            await queue.complete(job)
            with pytest.raises(UnavailableError, match="doctor --deep"):
                await queue.get(its_own[0])
            with pytest.raises(UnavailableError, match="doctor --deep"):
                await queue.push("k", 1, id=its_own[0])
            assert lost.record.id in (await deep.head()).cold.rows.segments
        assert "segment" in caplog.text

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_snapshot_beside_writes_is_of_one_version(
    queue_type: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_parts, "ROW_BYTES", 1000)
    monkeypatch.setattr(segment_parts, "_MANY_BLOCKS", 2)

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        pushed = list[str]()

        async def write(queue: Queue[Any]) -> None:
            """Push pairs in one commit, and take pairs away in one commit."""
            for number in range(150):
                pair = [JobSpec(kind="k", payload=number) for _ in range(2)]
                pushed.extend(await queue.push_many(pair))
                if number > 50:
                    assert len(await queue.claim(limit=2)) == 2

        async with deep.open(queue_type) as queue, deep.open(queue_type, "reader") as reader:
            writing = asyncio.create_task(write(queue))
            depths = []
            while not writing.done():
                known = len(pushed)
                jobs = (await reader.snapshot()).jobs
                assert [job.id for job in jobs[:known]] == pushed[:known]
                assert len({job.seq for job in jobs}) == len(jobs)
                assert len(jobs) % 2 == 0, "half a push"
                assert sum(job.status == "running" for job in jobs) % 2 == 0, "half a claim"
                depths.append(len(jobs))
                await asyncio.sleep(0.2)
            await writing
            assert len(depths) > 10
            assert (await deep.head()).cold.rows.segments
            assert [job.id for job in (await reader.snapshot()).jobs] == pushed

    run(main)


def test_rows_that_leave_in_any_order_do_not_make_the_object_large() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop, policy=SegmentPolicy(most_ranges=20))
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            ids = list(await queue.push_many([JobSpec(kind="k", payload=n) for n in range(600)]))
            await asyncio.sleep(5)
            for job in ids[::2]:
                assert await queue.cancel(job) == "cancelled"
            await asyncio.sleep(20)
            rows = (await deep.head()).cold.rows
            assert any(each.record.vector for each in rows.segments.values())
            assert sum(len(each.since) for each in rows.segments.values()) <= 20
        async with deep.open(GroupCommitter) as queue:
            assert (await queue.stats()).counts["k"]["queued"] == 300
            assert await queue.cancel(ids[1]) == "cancelled"
            assert [job.id for job in await queue.claim(limit=1000)] == ids[3::2]

    run(main)


def test_vectors_that_are_named_no_more_are_deleted() -> None:
    async def main(loop: VirtualLoop) -> None:
        policy = SegmentPolicy(most_ranges=20, least_versions=2, first_sweep_s=20, sweep_s=20)
        deep = Deep(loop, policy=policy)
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            ids = list(await queue.push_many([JobSpec(kind="k", payload=n) for n in range(600)]))
            await asyncio.sleep(5)
            for step in (2, 3, 5):
                for job in ids[::step]:
                    await queue.cancel(job)
                await asyncio.sleep(10)
            await asyncio.sleep(100)
            left = {key.rpartition("/")[2] for key in await deep.segments()}
            rows = (await deep.head()).cold.rows
            assert any(name.endswith(".gone") for name in left)
            assert {name.removesuffix(".jsonl") for name in left} == rows.names()

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
@pytest.mark.parametrize("end", ["fail", "release"])
def test_jobs_that_ran_spill_again(queue_type: type[Any], end: str) -> None:
    """The object does not grow when they are given back, so its size is not the reason."""

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            await queue.push_many([JobSpec(kind="k", payload="x" * 300) for _ in range(100)])
            jobs = await queue.claim(limit=100)
            await asyncio.sleep(10)
            for job in jobs:
                if end == "fail":
                    assert await queue.fail(job, "no", retry=False) == "dead"
                else:
                    await queue.release(job)
            await asyncio.sleep(10)
            await queue.push("k", 1)
            await asyncio.sleep(10)
            assert (await queue.stats()).head_bytes < 4 * SPILL_BYTES
            assert (await queue.stats()).total("dead" if end == "fail" else "queued") >= 100

    run(main)


def test_jobs_with_long_errors_spill() -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            await queue.push_many([JobSpec(kind="k", payload=1) for _ in range(8)])
            for job in await queue.claim(limit=8):
                await queue.fail(job, "x" * 4000, retry=False)
            await asyncio.sleep(10)
            assert (await queue.stats()).head_bytes < 4 * SPILL_BYTES

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_claims_find_nothing_more_while_running_jobs_take_too_many_bytes(
    queue_type: type[Any],
) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create(max_running_bytes=5000)
        async with deep.open(queue_type) as queue:
            for _ in range(10):
                await queue.push("k", "x" * 2000)
            await queue.push("k", "x" * 9000, priority=1)
            first = await queue.claim(limit=10)
            assert len(first) == 3, "the last one may be larger than what is left"
            assert await queue.claim(limit=10) == []
            waiting = asyncio.create_task(queue.claim(limit=10, wait_s=100))
            await asyncio.sleep(20)
            assert not waiting.done()
            await queue.complete(first[0])
            (more,) = await waiting
            for job in [*first[1:], more]:
                await queue.complete(job)
            while len(jobs := await queue.claim(limit=10)) > 1:
                await queue.complete_many(jobs)
            assert len(jobs[0].payload) == 9000, "a job that is larger is handed out alone"

    run(main)


def test_a_claim_that_was_not_written_when_its_queue_closes_claims_nothing() -> None:
    """Its caller may withdraw it elsewhere by then, and the job would wait for its lease."""

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        queue = deep.open(DirectCommitter)
        async with queue:
            await queue.push("k", 1)
            pushing = loop.create_task(queue.push("k", 2))
            claiming = loop.create_task(queue.claim(limit=5))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await pushing
        with pytest.raises(ClosedError):
            await claiming
        assert [job.status for job in (await deep.head()).jobs] == ["queued", "queued"]

    run(main)

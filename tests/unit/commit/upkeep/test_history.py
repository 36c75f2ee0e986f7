"""The history of a queue: it is complete and bounded, and keeping it never stops a commit."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from bucketq.codec.decode import decode
from bucketq.codec.history_file import decode_changes, encode_changes
from bucketq.codec.past_state import PastState
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.history_folder import HistoryFolder
from bucketq.commit.objects.queue_history import HistoryPolicy
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_policy import SegmentPolicy
from bucketq.errors import HistoryGapError, InvalidRequestError, RejectedError, StoreRefusedError
from bucketq.model.history import ChangeRecord, History
from bucketq.model.operations import Snapshot
from bucketq.model.records import JobRecord
from bucketq.model.state import State
from bucketq.queue.change import Change
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, VirtualLoop, run
from simulator.invariants.segment_invariants import segment_key
from simulator.whole_queue import WholeReader

KEY = "queue.json"
SPILL_BYTES = 4000
QUEUES = [DirectCommitter, GroupCommitter]
POLICY = HistoryPolicy(copy_s=20.0)
SWEEPS = SegmentPolicy(least_versions=4, first_sweep_s=5.0, sweep_s=5.0)


class World:
    """A store, and queues over it that have a history."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.store = SimulatedStore(loop)
        self.clock = SimulatedClock(loop)
        self.policy = POLICY

    def open(self, queue_type: type[Any] = GroupCommitter, name: str = "link") -> Queue[Any]:
        link = self.store.connect(name)
        register = Register(link, KEY, "queue", self.clock)
        register.segments.policy, register.history.policy = SWEEPS, self.policy
        return Queue(queue_type(register, self.clock), self.clock)

    async def create(self, **settings: Any) -> None:
        changes = {"spill_bytes": SPILL_BYTES, "history_retention_s": 3600.0} | settings
        async with self.open(DirectCommitter, "creator") as queue:
            await queue.configure(**changes)

    async def work(self, queue: Queue[Any], rounds: int, *, pause_s: float = 0.2) -> None:
        """Push, claim, complete, fail, cancel and pause."""
        for number in range(rounds):
            ids = await queue.push_many(
                [JobSpec(kind="ab"[n % 2], payload={"n": n}, priority=n % 3) for n in range(8)]
            )
            jobs = await queue.claim(limit=4)
            await queue.complete(jobs[0], {"result": number})
            await queue.fail(jobs[1], "no", retry=number % 2 == 0)
            await queue.release(jobs[2])
            await queue.cancel(ids[-1])
            if number % 5 == 0:
                await queue.pause("b")
                await queue.resume("b")
            await asyncio.sleep(pause_s)

    def commits(self) -> dict[int, str]:
        """The commit of every version that landed."""
        head = self.head()
        rings = [*range(1, head.version, len(head.commits)), head.version]
        commits: dict[int, str] = {}
        for number in rings:
            state = self.version(min(number + len(head.commits) - 1, head.version))
            first = state.version - len(state.commits) + 1
            commits |= dict(enumerate(state.commits, start=first))
        return commits

    def version(self, version: int) -> State:
        """A version that landed."""
        state = decode(self.store.history(KEY)[version - 1].body or b"", "head").state
        assert state.version == version
        return state

    def head(self) -> State:
        return self.version(len(self.store.history(KEY)))

    def objects(self, end: str = ".jsonl") -> list[str]:
        return [key for key in self.store.keys("queue/history/") if key.endswith(end)]

    def jobs_at(self, version: int) -> list[JobRecord]:
        """The jobs of a version, from the object and the segments that it names."""

        def read(incarnation: str, name: str) -> bytes | None:
            puts = self.store.history(segment_key(KEY, incarnation, name))
            return puts[0].body

        body = self.store.history(KEY)[version - 1].body or b""
        return shown([*WholeReader(read).whole(body, "head").whole.jobs])


def shown(jobs: list[JobRecord]) -> list[JobRecord]:
    return [structs.replace(job, lease=None) for job in jobs]


async def collect(queue: Queue[Any], since: int | None = None) -> list[Change]:
    return [change async for change in queue.changes(since, follow=False)]


@pytest.mark.parametrize("queue_type", QUEUES)
def test_the_feed_has_every_version_once(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with world.open(queue_type) as queue:
            await world.work(queue, 30)
            head = world.head()
            changes = await collect(queue)
            assert world.objects(), "most of it is in objects"
            newest = changes[-1].version
            assert newest >= head.version
            assert [change.version for change in changes] == [*range(3, newest + 1)]
            commits = world.commits()
            assert all(change.commit == commits[change.version] for change in changes)
            assert (await collect(queue, 40))[: newest - 40] == changes[38:]
            assert head.history.size_bytes < 2 * SPILL_BYTES
            verbs = {request.verb for change in changes for request in change.requests}
            assert {"push", "claim", "complete", "fail", "release", "cancel", "pause"} <= verbs

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_every_version_can_be_rebuilt(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with world.open(queue_type) as queue:
            await world.work(queue, 10, pause_s=6.0)
            head = world.head()
            copies = [copy.seq for copy in head.history.copies]
            assert len(copies) >= 2
            with pytest.raises(HistoryGapError, match=f"begins with version {copies[0]}"):
                await queue.snapshot(version=copies[0] - 1)
            for version in range(copies[0], head.version + 1, 9):
                past = await queue.snapshot(version=version)
                assert past.version == version
                assert [*past.jobs] == world.jobs_at(version)
            assert past.settings == head.settings

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_push_that_goes_to_segments_at_once_is_in_the_history(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with world.open(queue_type) as queue:
            await world.work(queue, 1)
            pushed = await queue.push_many(
                [JobSpec(kind="k", payload={"n": n, "text": "x" * 200}) for n in range(40)]
            )
            assert any(each.record.base for each in world.head().cold.rows.segments.values())
            await queue.cancel(pushed[7])
            changes = await collect(queue)
            (change,) = [each for each in changes if len(each.jobs) == len(pushed)]
            assert [job.id for job in change.jobs] == pushed
            assert change.requests[0].jobs == tuple(pushed)
            await asyncio.sleep(25)
            await queue.cancel(pushed[8])
            await asyncio.sleep(2)
            for version in (change.version, world.head().version):
                past = await queue.snapshot(version=version)
                assert [*past.jobs] == world.jobs_at(version)

    run(main)


def test_a_version_is_found_by_its_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with world.open() as queue:
            await world.work(queue, 10, pause_s=5.0)
            changes = await collect(queue)
            wanted = changes[40]
            past = await queue.snapshot(at=wanted.at)
            later = [each.version for each in changes if each.at > wanted.at]
            assert past.version == later[0] - 1
            before = await queue.snapshot(at=wanted.at - timedelta(microseconds=1))
            assert before.version < wanted.version
            with pytest.raises(HistoryGapError):
                await queue.snapshot(at=changes[0].at - timedelta(hours=1))
            with pytest.raises(InvalidRequestError, match="no version 9999"):
                await queue.snapshot(version=9999)

    run(main)


def test_a_replay_from_empty_gives_the_newest_version() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with world.open() as queue:
            await world.work(queue, 12)
            past = PastState(2)
            async for row in queue._rows(2, world.head().incarnation):
                past.step(row)
                if row.seq % 9 == 0:
                    assert [*past.jobs()] == world.jobs_at(row.seq)
            newest: Snapshot = await queue.snapshot()
            assert past.version == newest.version
            assert [*past.jobs()] == shown([*newest.jobs])

    run(main)


def test_without_history_the_feed_is_an_error() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        for queue_type in QUEUES:
            async with world.open(queue_type) as queue:
                with pytest.raises(RejectedError, match="history_retention_s"):
                    await collect(queue)

    run(main)


def test_segments_of_copies_are_not_swept_before_the_copies_are_forgotten() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create(history_retention_s=200.0)
        async with world.open() as queue:
            for start in range(0, 80, 20):
                await queue.push_many([JobSpec(kind="k", payload=start + n) for n in range(20)])
                await asyncio.sleep(10)
            while jobs := await queue.claim(limit=20):
                await queue.complete_many(jobs)
                await asyncio.sleep(1)
            await asyncio.sleep(60)
            head = world.head()
            assert not head.cold.rows.segments
            segments = world.store.keys("queue/segments/")
            assert segments, "the copies name them"
            for copy in [*head.history.copies][1:3]:
                past = await queue.snapshot(version=copy.seq)
                assert len(past.jobs) > 0
            for _ in range(30):
                await queue.push("later", 1)
                await asyncio.sleep(20)
            head = world.head()
            named = head.cold.rows.names()
            left = {key.rpartition("/")[2] for key in world.store.keys("queue/segments/")}
            assert left == {f"{name}.jsonl" for name in named}, "no others are left"
            assert not left & {key.rpartition("/")[2] for key in segments}
            oldest = next(iter(head.history.copies))
            assert oldest.at >= world.clock.now() - timedelta(seconds=300)
            assert head.history.since == oldest.seq + 1
            listed = {copy.id for copy in head.history.copies}
            found = {key.rpartition("/")[2][:20] for key in world.objects(".head.json")}
            assert listed <= found
            assert (await collect(queue))[0].version == head.history.since

    run(main)


def test_beyond_its_bytes_the_oldest_is_forgotten() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create(history_bytes=20_000)
        async with world.open() as queue:
            await world.work(queue, 30, pause_s=1.0)
            await asyncio.sleep(30)
            size_bytes = sum(
                len(found.body)
                for key in world.store.keys("queue/history/")
                if (found := world.store.peek(key)) is not None
            )
            assert size_bytes < 50_000
            assert world.head().history.since > 3
            changes = await collect(queue)
            assert changes[0].version == world.head().history.since

    run(main)


def test_small_objects_are_merged() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with world.open() as queue:
            await world.work(queue, 100)
            await asyncio.sleep(5)
            puts = {each.key for each in world.store.commits if ".jsonl" in each.key}
            assert len([key for key in puts if "/history/" in key]) > 80
            assert len(world.objects()) < 50
            versions = [change.version for change in await collect(queue)]
            assert versions == [*range(3, world.head().version + 1)]

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_commits_continue_while_the_history_cannot_be_written(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        link = world.store.connect("refused")
        create = link.create

        async def refuse(key: str, body: bytes) -> str:
            if "/history/" in key:
                raise StoreRefusedError(f"{key} is not allowed")
            return await create(key, body)

        link.create = refuse  # type: ignore[method-assign]
        register = Register(link, KEY, "queue", world.clock)
        register.history.policy = replace(POLICY, patience_s=2.0)
        opened: Queue[Any] = Queue(queue_type(register, world.clock), world.clock)
        async with opened as queue:
            await world.work(queue, 25)
            head = world.head()
            assert head.history.size_bytes < 8 * SPILL_BYTES
            assert head.history.since > 3, "what could not be written was given up"
            changes = await collect(queue, head.history.since - 1)
            assert changes[-1].version == head.version
            with pytest.raises(HistoryGapError, match="begins with version"):
                await collect(queue, 3)
        link.create = create  # type: ignore[method-assign]
        async with world.open(queue_type) as queue:
            await world.work(queue, 10)
            assert world.head().history.copies
            await collect(queue)

    run(main)


def test_short_lived_writers_keep_the_history_too() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        for number in range(60):
            async with world.open(DirectCommitter) as queue:
                await queue.push("kind", {"number": number, "text": "x" * 50})
        head = world.head()
        assert head.history.size_bytes < 2 * SPILL_BYTES
        assert head.history.copies
        async with world.open(DirectCommitter) as queue:
            changes = await collect(queue)
            versions = [change.version for change in changes]
            assert versions == [*range(3, world.head().version + 1)]

    run(main)


def test_forgetting_deletes_from_the_storage_and_switching_off_deletes_all() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with world.open() as queue:
            await world.work(queue, 15)
            changes = await collect(queue)
            moment = changes[60].at
            first = await queue.forget_history(moment)
            assert first > changes[60].version
            await asyncio.sleep(10)
            left = b"".join(
                found.body for key in world.objects() if (found := world.store.peek(key))
            )
            assert changes[60].commit.encode() not in left
            assert (await collect(queue))[0].version == first
            await queue.configure(history_retention_s=0)
            await asyncio.sleep(10)
            assert world.store.keys("queue/history/") == []

    run(main)


def test_rows_of_lost_commits_are_in_no_object() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        async with (
            world.open(GroupCommitter, "one") as one,
            world.open(GroupCommitter, "two") as two,
            world.open(DirectCommitter, "three") as three,
        ):
            await asyncio.gather(*(world.work(each, 8) for each in (one, two, three)))
            changes = await collect(three)
            commits = world.commits()
            newest = changes[-1].version
            assert [change.version for change in changes] == [*range(3, newest + 1)]
            assert all(change.commit == commits[change.version] for change in changes)
        commits = world.commits()
        history = [each for each in world.store.commits if "/history/" in each.key]
        for put in history:
            for line in (put.body or b"").splitlines() if put.key.endswith(".jsonl") else ():
                row = msgspec.json.decode(line)
                assert commits[row["seq"]] == row["id"], "a row of a version that was lost"

    run(main)


def test_a_cut_object_is_not_one_that_another_process_is_about_to_delete() -> None:
    """A merge is cut where one of its sources begins, before the sources are deleted."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.create()
        link = world.store.connect("link")
        folder = HistoryFolder(link, KEY, "incarnation", world.clock)
        rows = [ChangeRecord(id=f"c{seq}", seq=seq, at=world.clock.now()) for seq in range(1, 9)]
        sources = [encode_changes([row]) for row in rows]
        for source in sources:
            await folder.put_changes(*source)
        merged, body = encode_changes(rows)
        await folder.put_changes(merged, body)
        state = State(incarnation="incarnation", created_at=world.clock.now())
        state.version, state.history = 8, History(8)
        await folder.sweep(state)
        await folder.sweep(state)
        for name, _ in sources:  # The process that merged them was slow.
            await folder._delete(name)
        (left,) = [name for name, _ in (await folder.list()).changes]
        assert (left.first, left.last) == (8, 8)
        (row,) = decode_changes(await folder.read_changes(left), "object")
        assert row == rows[-1]

    run(main)

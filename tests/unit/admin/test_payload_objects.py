"""Large payloads and results, for the commands that look after a queue as a whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketq import admin
from bucketq.admin.payload_objects import sweep_payloads
from bucketq.archive.archive_layout import Layout
from bucketq.archive.upkeep import prune
from bucketq.archive.writer import ArchiveWriter
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.commit.upkeep.side_sweep import SideSweep
from bucketq.errors import UploadExpiredError
from bucketq.model.base import NewJob
from bucketq.model.effects import side_refs
from bucketq.model.operations import Push, Request
from bucketq.model.side_objects import PutPart, SideRef, StageObject, new_digest, write_ref
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, VirtualLoop, run

KEY = "queue.json"
LARGE = "x" * 100_000


class World:
    """A queue with large payloads, in a store that can be looked into."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.store = SimulatedStore(loop)
        self.clock = SimulatedClock(loop)
        self.link = self.store.connect("world")
        self.target = admin.QueueObject(self.link, KEY, f"sim://{KEY}", self.clock)
        self.layout = Layout.of(self.link.url, KEY)

    def open(self, kind: Any = GroupCommitter, **options: Any) -> Queue[Any]:
        register = Register(self.store.connect("client"), KEY, "queue", self.clock)
        archive = ArchiveWriter(self.link, self.layout)
        return Queue(kind(register, self.clock, archive=archive), self.clock, **options)

    async def keys(self) -> list[str]:
        return [info.key async for info in self.link.list("queue/payloads/")]

    async def parts(self) -> list[str]:
        return [key for key in await self.keys() if "pending" not in key]

    async def upload(self, queue: Queue[Any], job: str) -> SideRef:
        """Write a side object, and name it nowhere."""
        data = LARGE.encode()
        digest, nonce = new_digest(data).hexdigest(), self.clock.entropy(8).hex()
        stage = StageObject(content="payload", bytes=len(data), digest=digest, nonce=nonce)
        staged = await queue._sender.send(stage)
        put = PutPart(object=staged.object, part=0, data=data, job=job, content="payload")
        await queue._sender.send(put)
        return SideRef(staged.object, len(data), digest)

    async def sweep(self, queue: Queue[Any]) -> int:
        """Sweep as a process that keeps the queue open."""
        register = Register(self.link, KEY, "queue", self.clock)
        state = (await register.load()).state

        async def submit(request: Request) -> Any:
            return await queue._sender.send(request.operation)

        archive = ArchiveWriter(self.link, self.layout)
        return await SideSweep(submit, register, archive, self.clock).sweep(state.incarnation)


def pushed(ref: SideRef, job: str) -> Push:
    new = NewJob(id=job, kind="film", payload=write_ref(ref), payload_encoding="object")
    return Push(jobs=(new,))


@pytest.fixture
def short_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Side objects of these tests may be introduced by the next four versions only."""
    monkeypatch.setattr(side_refs, "_VERSIONS", 3)


@pytest.mark.shallow
@pytest.mark.parametrize("kind", [DirectCommitter, GroupCommitter])
@pytest.mark.usefixtures("short_lived")
def test_what_was_never_named_is_swept_when_it_cannot_be_any_more(kind: type) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open(kind) as queue:
            kept = await queue.push("film", LARGE)
            await world.upload(queue, "never-pushed")
            assert len(await world.keys()) == 3
            assert await world.sweep(queue) == 0, "it may be named by the next version"
            for _ in range(4):
                await queue.push("other", 1)
            assert await world.sweep(queue) == 1
            assert len(await world.keys()) == 1
            (job,) = await queue.claim("film")
            assert (job.id, job.payload) == (kept, LARGE)

    run(main)


@pytest.mark.usefixtures("short_lived")
def test_what_a_job_or_the_archive_names_is_kept_and_unmarked() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open() as queue:
            for job in ("queued", "archived"):
                ref = await world.upload(queue, job)
                await queue._sender.send(pushed(ref, job))
            await queue.cancel("archived")
            await queue.flush_archive()
            for _ in range(4):
                await queue.push("other", 1)
            assert len(await world.keys()) == 4
            assert await world.sweep(queue) == 0
            assert len(await world.keys()) == 2, "the markers are deleted"
            assert await sweep_payloads(world.target) == 0

    run(main)


@pytest.mark.usefixtures("short_lived")
def test_a_name_is_refused_when_its_object_may_have_been_deleted() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open() as queue:
            late = await world.upload(queue, "late")
            for _ in range(4):
                await queue.push("other", 1)
            with pytest.raises(UploadExpiredError):
                await queue._sender.send(pushed(late, "late"))
            assert await world.sweep(queue) == 1

    run(main)


@pytest.mark.usefixtures("short_lived")
def test_a_push_that_takes_too_long_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open() as queue, world.open() as other:
            send, parts = queue._sender.send, 0

            async def slow(operation: Any, token: str | None = None) -> Any:
                nonlocal parts
                if isinstance(operation, PutPart):
                    parts += 1
                    for _ in range(5 if parts == 1 else 0):
                        await other.push("other", 1)
                return await send(operation, token)

            monkeypatch.setattr(queue._sender, "send", slow)
            await queue.push("film", LARGE)
            assert parts == 2
            (job,) = await queue.claim("film")
            assert job.payload == LARGE

    run(main)


@pytest.mark.shallow
def test_pruning_the_archive_deletes_what_its_lines_name() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open() as queue:
            await queue.push("film", LARGE)
            await queue.push("film", LARGE)
            done, _ = await queue.claim(limit=2)
            await queue.complete(done, LARGE + "y")
            await queue.flush_archive()
            assert len(await world.keys()) == 3
            now = world.clock.now()
            assert await prune(world.link, world.layout, now, world.clock) == 0
            assert len(await world.keys()) == 3
            later = now + timedelta(hours=2)
            assert await prune(world.link, world.layout, later, world.clock) == 1
            assert len(await world.keys()) == 1

    run(main)


@pytest.mark.usefixtures("short_lived")
def test_gc_deletes_a_payload_that_was_replaced() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open() as queue:
            await queue.push("film", LARGE, unique="u")
            await queue.push("film", LARGE + "y", unique="u", replace="payload")
            assert len(await world.parts()) == 2
            for _ in range(4):
                await queue.push("other", 1)
            assert (await admin.sweep(world.target)).payloads == 1
            (job,) = await queue.claim("film")
            assert job.payload == LARGE + "y"

    run(main)


@pytest.mark.shallow
@pytest.mark.parametrize("archive", [True, False])
def test_deleting_a_queue_keeps_what_a_kept_archive_names(archive: bool) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open() as queue:
            await queue.push("film", LARGE)
            await queue.push("film", LARGE)
            await queue.complete((await queue.claim())[0])
            await queue.flush_archive()
        deleted = await admin.delete(world.target, await world.target.read(), archive=archive)
        assert deleted.payloads == (2 if archive else 1)
        assert len(await world.keys()) == (0 if archive else 1)

    run(main)


def test_a_restored_queue_has_objects_of_its_own() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        async with world.open() as queue:
            await queue.configure(spill_bytes=300)
            await queue.push("film", LARGE)
            await queue.claim()
            await queue.push("film", LARGE + "y")
            copy = await admin.backup(world.target)
            assert copy.has_payloads
            assert len(list(admin.large_jobs_in(copy.body))) == 2
        restored = await admin.restore(world.target, copy.body, overwrite=True)
        assert restored.lost_payloads == 0
        assert len(await world.parts()) == 4
        async with world.open() as queue:
            jobs = await queue.claim(limit=3)
            assert [job.payload for job in jobs] == [LARGE, LARGE + "y"]
            incarnation = restored.summary.incarnation.encode()
            refs = [bytes((await queue.get(job.id)).record.payload) for job in jobs]
            assert [incarnation in ref for ref in refs] == [True, True]

    run(main)

"""The example that indexes, on storage that fails, with processes that are killed at any step.

Writers, indexers and a merger run on a simulated store. While it storms, requests are lost, late,
repeated and misreported, and indexers and mergers are killed and begun again. All the while a
reader searches.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from bucketq.errors import UnavailableError
from bucketq.testing.simulated_process import Process
from bucketq.testing.simulated_store import SimulatedStore
from bucketq.testing.store_faults import Faults
from bucketq.testing.virtual_loop import VirtualLoop, run
from examples.indexing import manifest
from examples.indexing.location import Location
from examples.indexing.search import Answer, search
from examples.indexing.tasks import index_segment, merge_parts
from examples.indexing.wal import Document, Wal

NAMESPACE = "docs"
WRITERS = 2
WRITES = 9
STORM_S = 200.0


class World:
    """Everybody who writes, indexes, merges and reads."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.store = SimulatedStore(loop, Faults.harsh())
        self.dice = loop.stream("kills")
        self.begun: set[str] = set()
        self.acknowledged: set[str] = set()
        self.answers = 0

    def location(self, name: str) -> Location:
        return Location(self.store.connect(name), "", "simulated://")

    async def write(self, name: str) -> None:
        """Write documents one by one; what is not acknowledged may be there or not."""
        wal = Wal(self.location(name), NAMESPACE)
        for number in range(WRITES):
            document = Document(f"{name}-{number}", "", f"every {name}")
            self.begun.add(document.id)
            try:
                await wal.append([document])
            except UnavailableError:
                continue
            self.acknowledged.add(document.id)
            await asyncio.sleep(self.dice.uniform(0, 10))

    async def index(self, name: str) -> None:
        """Index all that is not, as jobs that are tried again and again would."""
        location = self.location(name)
        while True:
            with contextlib.suppress(UnavailableError):
                covered = (await manifest.load(location, NAMESPACE)).segments
                last = await Wal(location, NAMESPACE).last()
                for number in set(range(1, last + 1)) - covered:
                    await index_segment(location, NAMESPACE, number)
            await asyncio.sleep(self.dice.uniform(0, 2))

    async def merge(self, name: str) -> None:
        location = self.location(name)
        while True:
            with contextlib.suppress(UnavailableError):
                await merge_parts(location, NAMESPACE)
            await asyncio.sleep(self.dice.uniform(0, 5))

    async def read(self) -> None:
        """Search, and compare with what was acknowledged before and begun until then."""
        location = self.location("reader")
        while True:
            before = set(self.acknowledged)
            try:
                answer = await search(location, NAMESPACE, "every", limit=1000)
            except UnavailableError:
                continue
            except Exception as error:
                if before or "has no documents" not in str(error):
                    raise
                await asyncio.sleep(1)
                continue
            self.judge(answer, before)
            self.answers += 1
            await asyncio.sleep(self.dice.uniform(0, 5))

    def judge(self, answer: Answer, before: set[str]) -> None:
        found = [hit.document.id for hit in answer.hits]
        assert len(found) == len(set(found)), "a document was found twice"
        assert before <= set(found) <= self.begun
        assert len(found) == answer.matching == answer.indexed + answer.tail

    async def kill_now_and_then(self) -> None:
        """Indexers and mergers die at any step, and others come."""
        casts = {"indexer-a": self.index, "indexer-b": self.index, "a": self.merge, "b": self.merge}
        running = {name: self.start(name, act) for name, act in casts.items()}
        until_s = self.loop.time() + STORM_S
        while self.loop.time() < until_s:
            await asyncio.sleep(self.dice.uniform(0, 4))
            name = self.dice.choice(list(casts))
            running[name].kill_after(self.dice.randrange(200))
            await asyncio.sleep(self.dice.uniform(0, 2))
            if not running[name].alive:
                running[name] = self.start(name, casts[name])
        for process in running.values():
            process.kill()

    def start(self, name: str, act: Callable[[str], Coroutine[Any, Any, None]]) -> Process:
        return self.loop.spawn(name, partial(act, name))

    async def play(self) -> None:
        reader = self.loop.spawn("reader", self.read)
        writers = [self.start(f"writer{number}", self.write) for number in range(WRITERS)]
        await self.kill_now_and_then()
        for writer in writers:
            await writer.wait()
        self.store.end_faults()
        # What is late still arrives, and must not matter.
        await asyncio.sleep(120)
        reader.kill()
        assert reader.error is None, reader.error


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 5))]
)
def test_no_fault_and_no_kill_loses_or_doubles_a_document(seed: int) -> None:
    random.seed(seed)

    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        await world.play()
        location = world.location("judge")
        last = await Wal(location, NAMESPACE).last()
        for number in range(1, last + 1):
            await index_segment(location, NAMESPACE, number)
        await merge_parts(location, NAMESPACE)
        answer = await search(location, NAMESPACE, "every", limit=1000)
        world.judge(answer, world.acknowledged)
        found = await manifest.load(location, NAMESPACE)
        assert (answer.tail, len(found.segments)) == (0, last)
        assert sum(part.segment_count for part in found.parts) == last, "a segment is in two parts"
        assert len(world.acknowledged) > WRITES
        assert world.answers > 5
        missing = [key for key in found.keys if world.store.peek(key) is None]
        assert not missing, f"the manifest names files that are gone: {missing}"

    run(main, seed=seed)

"""A read shows exactly one committed version, also while batches are under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, VirtualLoop, run
from simulator.invariants.segment_invariants import segment_key
from simulator.whole_queue import WholeReader


@pytest.mark.parametrize("spill_bytes", [300, 300_000])
@pytest.mark.parametrize("kind", [DirectCommitter, GroupCommitter])
def test_a_snapshot_among_pushes_is_the_version_that_it_names(
    kind: type[Any], spill_bytes: int
) -> None:
    async def main(loop: VirtualLoop) -> None:
        store = SimulatedStore(loop)
        clock = SimulatedClock(loop)
        register = Register(store.connect(), "q.json", "queue", clock)
        async with Queue[Any](kind(register, clock), clock) as queue:
            await queue.configure(spill_bytes=spill_bytes)

            async def look(after_s: float) -> Any:
                await asyncio.sleep(after_s)
                return await queue.snapshot()

            async def push(after_s: float) -> None:
                await asyncio.sleep(after_s)
                await queue.push("k", after_s)

            pushes = [push(0.01 * number) for number in range(30)]
            looks = [look(0.007 * number) for number in range(30)]
            found = await asyncio.gather(*pushes, *looks)
            reader = WholeReader(lambda *name: store.history(segment_key("q.json", *name))[0].body)
            for snapshot in found[30:]:
                body = store.history("q.json")[snapshot.version - 1].body
                assert body is not None
                assert tuple(reader.whole(body, "version").whole.jobs) == snapshot.jobs

    run(main)

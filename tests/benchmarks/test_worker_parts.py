"""The parts of a worker that ``benchmarks/worker.py`` measures fit the engine as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from benchmarks.worker_parts import PARTS


@pytest.mark.parametrize("part", list(PARTS.values()), ids=[str(n) for n in range(len(PARTS))])
def test_a_part_of_a_worker_runs_to_its_end(part: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await part(20)

    asyncio.run(run())

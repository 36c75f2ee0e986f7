"""Publishes positions of writers by adoption: segments are put first, and one commit adds them.

Some are published as ``push --bulk`` does it, by one process, and others as Spark does it: tasks
share a reservation by a name, the driver adds what they report or gives up, and a second copy of a
slow task comes when that is over.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
from msgspec import Raw

from bucketq.clock import Clock
from bucketq.codec.pushed_rows import pushed_row
from bucketq.codec.segment_file import encode_segment
from bucketq.commit.bulk_write import BulkWrite, Reservation, new_name, put_reserved
from bucketq.errors import RejectedError
from bucketq.model.base import NewJob
from bucketq.model.segments import SegmentRecord
from bucketq.store.base import ObjectStore

Position = tuple[str, int, int, str, list[str]]
"""A writer, a batch, a part, and what is published there: a kind, and tokens."""

_LONGEST_PAUSE_S = 8.0
"""Between two steps of a bulk write: sweeps, expiries and other writers come in between."""
_SHARED = 0.5
"""How many bulk writes have tasks."""
_ABORTS = 0.2
"""How many of these are given up."""
_SLOWER = 4.0
"""A copy that is so much slower mostly begins when the write is over."""


@dataclass(frozen=True)
class BulkPublisher:
    """Publishes from one machine."""

    store: ObjectStore
    key: str
    clock: Clock
    rng: random.Random
    timeout_s: float

    async def publish(self, position: Position) -> bool:
        """Publish a position in segments of one or two jobs; return whether it was now."""
        if self.rng.random() < _SHARED:
            return await self._publish_by_tasks(position)
        writer, batch, part, _, tokens = position
        async with self._opened() as bulk:
            reservation = await bulk.reserve(writer, batch, part)
            if reservation is None:
                return False
            records = await self._put(bulk, reservation, position, tokens)
            await asyncio.sleep(self.rng.uniform(0, _LONGEST_PAUSE_S))
            return await bulk.adopt(reservation, writer, batch, records, part)

    async def _publish_by_tasks(self, position: Position) -> bool:
        """Publish with two tasks, of which the first runs twice."""
        writer, batch, part, _, tokens = position
        async with self._opened() as bulk:
            await bulk.clear(writer)  # What an earlier run has left behind.
        name, cut = new_name(self.clock), self.rng.randint(0, len(tokens))
        loop = asyncio.get_running_loop()
        shares = [(tokens[:cut], 1), (tokens[cut:], 1), (tokens[:cut], _SLOWER)]
        tasks = [
            loop.create_task(self._run_task(position, name, some, slower))
            for some, slower in shares
        ]
        try:
            found = await asyncio.gather(*tasks[:2])
            async with self._opened() as bulk:
                if self.rng.random() < _ABORTS:
                    await bulk.clear(writer, name)
                    raise RejectedError("the write was given up")
                reservation = await bulk.reserve(writer, batch, part, name=name)
                if reservation is None:
                    return False
                return await bulk.adopt(reservation, writer, batch, [*chain(*found)], part)
        finally:
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_task(
        self, position: Position, name: str, tokens: Sequence[str], slower: float
    ) -> list[SegmentRecord]:
        """Put some jobs; nothing if the position was published before."""
        writer, batch, part, _, _ = position
        await asyncio.sleep(self.rng.uniform(0, slower * _LONGEST_PAUSE_S))
        async with self._opened() as bulk:
            reservation = await bulk.reserve(writer, batch, part, name=name)
            if reservation is None:
                return []
            return await self._put(bulk, reservation, position, tokens)

    async def _put(
        self, bulk: BulkWrite, reservation: Reservation, position: Position, tokens: Sequence[str]
    ) -> list[SegmentRecord]:
        kind, records, left = position[3], list[SegmentRecord](), list(tokens)
        while left:
            await asyncio.sleep(self.rng.uniform(0, _LONGEST_PAUSE_S))
            size = self.rng.randint(1, 2)
            some, left = left[:size], left[size:]
            rows = [
                pushed_row(NewJob(id=token, kind=kind, payload=_payload(token)), place)
                for place, token in enumerate(some)
            ]
            encoded = encode_segment("ready", rows)
            records.append(await put_reserved(bulk.folder, reservation, encoded, self.clock))
        return records

    def _opened(self) -> BulkWrite:
        where = "simulated queue"
        return BulkWrite(self.store, self.key, where, self.clock, timeout_s=self.timeout_s)


def _payload(token: str) -> Raw:
    return Raw(msgspec.json.encode(token))

"""Publishes positions of writers by adoption: segments are put first, and one commit adds them."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from bucketq.clock import Clock
from bucketq.codec.pushed_rows import pushed_row
from bucketq.codec.segment_file import encode_segment
from bucketq.commit.bulk_write import BulkWrite, put_reserved
from bucketq.model.base import NewJob
from bucketq.store.base import ObjectStore

Position = tuple[str, int, int, str, list[str]]
"""A writer, a batch, a part, and what is published there: a kind, and tokens."""

_LONGEST_PAUSE_S = 8.0
"""Between two steps of a bulk write: sweeps, expiries and other writers come in between."""


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
        writer, batch, part, kind, tokens = position
        where = "simulated queue"
        async with BulkWrite(
            self.store, self.key, where, self.clock, timeout_s=self.timeout_s
        ) as bulk:
            reservation = await bulk.reserve(writer, batch, part)
            if reservation is None:
                return False
            records, left = [], list(tokens)
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
            await asyncio.sleep(self.rng.uniform(0, _LONGEST_PAUSE_S))
            return await bulk.adopt(reservation, writer, batch, records, part)


def _payload(token: str) -> Raw:
    return Raw(msgspec.json.encode(token))

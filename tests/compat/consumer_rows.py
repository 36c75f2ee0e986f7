"""Consumers and writers of golden objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import structs

from bucketq.model.numbered_batches import ConsumerRecord, PreparedBatch, WriterRecord


def _at(seconds: float) -> datetime:
    return datetime(2024, 5, 17, 8, 30, tzinfo=UTC) + timedelta(seconds=seconds)


CONSUMERS = (
    ConsumerRecord(
        id="spark/orders",
        seq=1,
        epoch=3,
        at=_at(30),
        batch=12,
        secret="6e3a1f0c9b8d47523c5e7a90b1d2f384",
        jobs=("job-2", "job-gone"),
    ),
    ConsumerRecord(id="größe L", seq=65, epoch=1, at=_at(31.5)),
)
WRITERS = (
    WriterRecord(id="sink/1", seq=2, batch=0, part=0, at=_at(32)),
    WriterRecord(id="sink/2", seq=70, batch=41, part=3, at=_at(33.25)),
)
EMPTIED = structs.replace(
    CONSUMERS[0],
    jobs=(),
    emptied=12,
    replays=(12, 3, 2),
    apart=(("job-1", 1), ("job-300", 300)),
)
AHEAD = structs.replace(
    CONSUMERS[0],
    seq_limit=(12, 301),
    prepared=PreparedBatch(
        batch=13, epoch=3, secret="7a" * 16, jobs=("job-300", "job-1"), seq_limit=302
    ),
)
ALONE = structs.replace(
    CONSUMERS[1], batch=4, secret="5e" * 16, jobs=("job-2",), alone=4, replays=(4, 1, 0)
)

"""Encodes and decodes the operations of consumers and writers, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bucketq.model.numbered_batches import (
    AckBatch,
    BatchPage,
    BatchState,
    ClaimBatch,
    ConsumerInfo,
    ConsumerState,
    OpenConsumer,
    Publish,
    ReadBatch,
    ReadConsumers,
    ReleaseBatch,
    RemoveConsumer,
)
from bucketq.model.operations import AnyOperation
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf import json_documents
from bucketq.rpc.protobuf.new_job_codec import ITEM_BYTES, by_name, names, read_jobs, write_jobs

_BASE_BYTES = 64
"""About the size of an operation without its names and jobs."""


def _read_claim(sent: pb.ClaimBatch) -> ClaimBatch:
    return ClaimBatch(
        consumer=sent.consumer,
        epoch=sent.epoch,
        batch=sent.batch,
        secret=sent.secret,
        worker=sent.worker,
        kinds=names(sent.kinds),
        limit=sent.limit,
        lease_s=sent.lease_s if sent.HasField("lease_s") else None,
    )


def _write_publish(sent: pb.Call, operation: Publish) -> int:
    publish = sent.publish
    publish.writer = operation.writer
    publish.batch = operation.batch
    publish.part = operation.part
    return ITEM_BYTES + write_jobs(publish.jobs, operation.jobs)


WRITERS: dict[type, Callable[[pb.Call, Any], int]] = {
    OpenConsumer: by_name("open_consumer"),
    ClaimBatch: by_name("claim_batch"),
    ReadBatch: by_name("read_batch"),
    AckBatch: by_name("ack_batch"),
    ReleaseBatch: by_name("release_batch"),
    ReadConsumers: by_name("consumers"),
    RemoveConsumer: by_name("remove_consumer"),
    Publish: _write_publish,
}
"""How each operation is written into a call."""

READERS: dict[str, Callable[[Any], AnyOperation]] = {
    "open_consumer": lambda m: OpenConsumer(consumer=m.consumer),
    "claim_batch": _read_claim,
    "read_batch": lambda m: ReadBatch(
        consumer=m.consumer, batch=m.batch, start=m.start, limit=m.limit
    ),
    "ack_batch": lambda m: AckBatch(consumer=m.consumer, epoch=m.epoch, batch=m.batch),
    "release_batch": lambda m: ReleaseBatch(consumer=m.consumer, epoch=m.epoch, batch=m.batch),
    "consumers": lambda _: ReadConsumers(),
    "remove_consumer": lambda m: RemoveConsumer(consumer=m.consumer),
    "publish": lambda m: Publish(
        writer=m.writer, batch=m.batch, part=m.part, jobs=read_jobs(m.jobs)
    ),
}
"""How each operation is read, by its verb."""


def _write_opened(sent: pb.Answer, state: ConsumerState) -> int:
    sent.opened.consumer = state.consumer
    sent.opened.epoch = state.epoch
    sent.opened.batch = state.batch
    sent.opened.pending = state.pending
    return _BASE_BYTES


def _write_batch(sent: pb.Answer, state: BatchState) -> int:
    sent.batch.batch = state.batch
    sent.batch.jobs = state.jobs
    sent.batch.lost.extend(state.lost)
    return _BASE_BYTES + ITEM_BYTES * len(state.lost)


def _write_page(sent: pb.Answer, page: BatchPage) -> int:
    written = [json_documents.encode(job) for job in page.jobs]
    sent.batch_page.SetInParent()
    sent.batch_page.jobs.extend(written)
    sent.batch_page.lost.extend(page.lost)
    if page.next_start is not None:
        sent.batch_page.next_start = page.next_start
    return _BASE_BYTES + ITEM_BYTES * len(page.lost) + sum(map(len, written))


def _read_page(sent: pb.BatchPage) -> BatchPage:
    next_start = sent.next_start if sent.HasField("next_start") else None
    return BatchPage(json_documents.read_jobs(sent.jobs), tuple(sent.lost), next_start)


def _write_consumers(sent: pb.Answer, consumers: tuple[ConsumerInfo, ...]) -> int:
    written = [json_documents.encode(consumer) for consumer in consumers]
    sent.consumer_list.SetInParent()
    sent.consumer_list.consumers.extend(written)
    return _BASE_BYTES + sum(map(len, written))


def _write_removed(sent: pb.Answer, found: bool) -> int:  # noqa: FBT001 - an answer as it is
    sent.removed.SetInParent()
    sent.removed.found = found
    return _BASE_BYTES


def _write_published(sent: pb.Answer, fresh: bool) -> int:  # noqa: FBT001 - an answer as it is
    sent.published.SetInParent()
    sent.published.fresh = fresh
    return _BASE_BYTES


ANSWER_WRITERS: dict[str, Callable[[pb.Answer, Any], int]] = {
    "open_consumer": _write_opened,
    "claim_batch": _write_batch,
    "read_batch": _write_page,
    "ack_batch": _write_batch,
    "release_batch": _write_batch,
    "consumers": _write_consumers,
    "remove_consumer": _write_removed,
    "publish": _write_published,
}
"""How each answer is written, by the verb that was asked for."""

ANSWER_READERS: dict[str, Callable[[Any], Any]] = {
    "opened": lambda m: ConsumerState(m.consumer, m.epoch, m.batch, m.pending),
    "batch": lambda m: BatchState(m.batch, m.jobs, tuple(m.lost)),
    "batch_page": _read_page,
    "consumer_list": lambda m: tuple([json_documents.read_consumer(row) for row in m.consumers]),
    "removed": lambda m: m.found,
    "published": lambda m: m.fresh,
}
"""How each answer is read, by the name under which it stands."""

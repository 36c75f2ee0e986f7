"""What a client sends instead if its broker does not know an operation yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any, cast

from msgspec.structs import replace

from bucketq.commit.request_ids import RequestId, parse_token, token_of
from bucketq.errors import (
    InvalidRequestError,
    LeaseLostError,
    NotDurableError,
    PayloadTooLargeError,
    UnavailableError,
)
from bucketq.model.base import NewJob
from bucketq.model.numbered_batches import AckBatch, BatchState, ClaimBatch, PrepareBatch
from bucketq.model.operations import (
    Complete,
    CompleteMany,
    Fail,
    LeaseRef,
    List,
    Push,
    Release,
    ReleaseMany,
    Request,
)
from bucketq.model.records import Status
from bucketq.model.settings import MIB
from bucketq.model.side_objects import Staged, StageObject


def refuse_follow_ups(
    operation: Complete | CompleteMany, known: Container[str], address: str
) -> None:
    """Raise ``InvalidRequestError`` if a completion pushes jobs that a broker would ignore."""
    completions = operation.jobs if isinstance(operation, CompleteMany) else (operation,)
    if "follow_ups" not in known and any(each.follow_ups for each in completions):
        raise InvalidRequestError(
            f"the broker at {address} cannot push jobs with a completion: upgrade it, or push them "
            "with queue.push"
        )
    for each in completions:
        if each.follow_ups:
            refuse_options(each.follow_ups, known, address)


def refuse_options(jobs: Sequence[NewJob], known: Container[str], address: str) -> None:
    """Raise ``InvalidRequestError`` if jobs have options that a broker would ignore."""
    if "expiry" not in known and any(job.expires_in_s is not None for job in jobs):
        raise InvalidRequestError(
            f"the broker at {address} does not know jobs that expire: upgrade it, or push without "
            "expires_in_s"
        )
    if "groups" not in known and any(job.group for job in jobs):
        raise InvalidRequestError(
            f"the broker at {address} does not know groups of jobs: upgrade it, or push without "
            "group"
        )
    if "unique" not in known and any(job.unique is not None for job in jobs):
        raise InvalidRequestError(
            f"the broker at {address} does not know unique jobs: upgrade it, or push without unique"
        )
    if "batches" not in known and any(job.batch_id is not None for job in jobs):
        raise InvalidRequestError(
            f"the broker at {address} does not know batches: upgrade it, or push without a batch"
        )
    if "after" not in known and any(job.after for job in jobs):
        raise InvalidRequestError(
            f"the broker at {address} does not know jobs that wait for others: upgrade it, or push "
            "without after"
        )


def refuse_batch_filter(operation: List, known: Container[str], address: str) -> None:
    """Raise ``InvalidRequestError`` if a broker would list all jobs instead of those of a batch."""
    if operation.batch_id and "jobs_of_batch" not in known:
        message = f"the broker at {address} cannot list the jobs of a batch: upgrade it"
        raise InvalidRequestError(message)


def stage_inline(operation: StageObject, address: str) -> Staged:
    """Answer where a payload or result goes if the broker does not know side objects."""
    if operation.bytes > MIB:
        raise PayloadTooLargeError(
            f"{operation.content} too large: the broker at {address} does not know "
            f"{operation.content}s of more than {MIB:,} bytes; upgrade it"
        )
    return Staged("", MIB)


def without_columns(request: Request, operation: Push | CompleteMany) -> Request:
    """Return a request for a broker that does not know columns: each job is a message."""
    return replace(request, operation=replace(operation, jobs=tuple(operation.jobs)))


async def send_instead(submit: Callable[[Request], Awaitable[Any]], request: Request) -> Any:
    """Do with other requests what a broker does not know; return the answer."""
    if isinstance(request.operation, Fail):
        return await _put_off(submit, request)
    if isinstance(request.operation, ClaimBatch):
        return await _ack_then_claim(submit, request.operation)
    if isinstance(request.operation, PrepareBatch):
        return BatchState(request.operation.batch, 0)  # It is claimed when its turn comes.
    return await _release_each(submit, request)


async def _put_off(submit: Callable[[Request], Awaitable[Any]], whole: Request) -> Status:
    """Release a job that is to be put off. How often that happens is not counted."""
    snooze = cast("Fail", whole.operation)
    delay_s = snooze.delay_s or 0.0
    await submit(
        _part_of(whole, 1).request(Release(job=snooze.job, lease=snooze.lease, delay_s=delay_s))
    )
    return "queued"


async def _ack_then_claim(
    submit: Callable[[Request], Awaitable[Any]], claim: ClaimBatch
) -> BatchState:
    """Acknowledge the batch before, and then claim the next one. Both can be sent again."""
    ack = AckBatch(consumer=claim.consumer, epoch=claim.epoch, batch=claim.acked)
    closed = await submit(Request(ack))
    claimed = await submit(Request(replace(claim, acked=0)))
    return replace(cast("BatchState", claimed), acked=closed.jobs, acked_lost=closed.lost)


def _part_of(whole: Request, number: int) -> RequestId:
    """Return an id for one of the requests that are sent instead, the same at every try."""
    name = RequestId(whole.session, whole.number, since=whole.since, made_ms=whole.made_ms)
    # As unique as a session.
    return RequestId(name.job_id(0), number, since=name.since, made_ms=name.made_ms)


async def _release_each(submit: Callable[[Request], Awaitable[Any]], whole: Request) -> list[bool]:
    """Release the jobs of a ``ReleaseMany`` one by one.

    Brokers commit requests that come together in one write anyway. Each release has an id that is
    derived from that of the whole, so that the whole can be retried under its id. If the outcome of
    some is unknown, the error carries a token of the whole.
    """
    many = cast("ReleaseMany", whole.operation)

    async def release(number: int, lease: LeaseRef) -> None:
        operation = Release(job=lease.job, lease=lease.lease, delay_s=many.delay_s)
        await submit(_part_of(whole, number).request(operation))

    releasing = (release(number, lease) for number, lease in enumerate(many.leases, start=1))
    ends = await asyncio.gather(*releasing, return_exceptions=True)
    unknown = [end for end in ends if isinstance(end, UnavailableError | NotDurableError)]
    for error in unknown:
        if error.request is None:
            raise error  # The queue has forgotten too much to judge a retry.
    if unknown:
        since = min(parse_token(error.request, Release).since or 0 for error in unknown)
        raise type(unknown[0])(str(unknown[0]), request=token_of(whole, since)) from unknown[0]
    for end in ends:
        if end is not None and not isinstance(end, LeaseLostError):
            raise end
    return [end is None for end in ends]

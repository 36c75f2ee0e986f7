"""Divides a request that concerns several partitions, and puts the answers together.

Each part is atomic, and the whole is not. What a client does about two rejections is to send the
same jobs again under another id, which must not repeat a part that has taken effect: parts that may
be rejected so are sent first, and once a part has taken effect, the outcome is called unknown, so
that the whole is repeated under its own id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec.structs import replace

from bucketq.errors import (
    DependencyNotFoundError,
    InvalidRequestError,
    RejectedError,
    UnavailableError,
    UploadExpiredError,
)
from bucketq.model.base import NewJob
from bucketq.model.job_ids import ID_LENGTH, is_made_by, made_at, made_by
from bucketq.model.operations import Completion, Push, Request
from bucketq.model.partitions import id_in_partition, partition_at, partition_of, place_of
from bucketq.model.side_objects import is_side

Parts = dict[int, list[tuple[int, Any]]]
"""By partition: rows, each with its place in the request."""

_SENT_AGAIN = (UploadExpiredError, DependencyNotFoundError)


def divide_jobs(request: Request, count: int) -> Parts:
    """Divide the jobs of a push by partition; their made ids name it."""
    made = made_by(request.session, request.number)
    parts: Parts = {}
    indexes: dict[str, int] = {}
    for place, job in enumerate(cast("Push", request.operation).jobs):
        decisive = place_of(job)
        # A job of the same push that it waits for may be in another partition than its id says.
        what, _, name = decisive.partition("=")
        known = indexes.get(name) if what == "id" else None
        index = partition_at(decisive, count) if known is None else known
        indexes[job.id] = index
        _check_links(job, index, count)
        placed = job
        if partition_of(job.id, count) != index and is_made_by(made, job.id):
            placed = replace(job, id=id_in_partition(job.id, index))
        parts.setdefault(index, []).append((place, placed))
    return parts


def _check_links(job: NewJob, index: int, count: int) -> None:
    """Refuse a job whose batch, or one that it waits for, is in another partition."""
    if job.batch_id is not None and partition_of(job.batch_id, count) != index:
        message = (
            f"job {job.id} belongs to partition {index}, and batch {job.batch_id} is in partition "
            f"{partition_of(job.batch_id, count)}: a batch is in one partition, so its jobs have "
            "no group, key or unique name of another one"
        )
        raise InvalidRequestError(message)
    for name in job.after:
        is_made = len(name) == ID_LENGTH and made_at(name) is not None
        if is_made and partition_of(name, count) != index:
            message = (
                f"job {job.id} belongs to partition {index}, and {name}, which it is to wait for, "
                f"to partition {partition_of(name, count)}: give both the same group"
            )
            raise InvalidRequestError(message)


async def divided(
    parts: Parts,
    send: Callable[[int, tuple[Any, ...]], Awaitable[Any]],
    token: Callable[[], str | None],
) -> tuple[Any, ...]:
    """Send each part, and return the answers in the order of the request."""
    if len(parts) == 1:
        ((index, rows),) = parts.items()
        answer: tuple[Any, ...] = await send(index, tuple([row for _, row in rows]))
        return answer
    known = token()
    answers: dict[int, Any] = {}
    failures: list[BaseException] = []

    async def send_part(index: int) -> None:
        try:
            part = await send(index, tuple([row for _, row in parts[index]]))
        except Exception as error:  # noqa: BLE001 - the others are awaited first
            failures.append(error)
            return
        answers.update({place: each for (place, _), each in zip(parts[index], part, strict=True)})

    touchy = [index for index in sorted(parts) if any(_is_touchy(row) for _, row in parts[index])]
    for index in touchy:
        await send_part(index)
        if failures:
            break
    if not failures:
        await asyncio.gather(*(send_part(index) for index in sorted(parts) if index not in touchy))
    if failures:
        raise _failure(failures, len(answers), sum(map(len, parts.values())), known)
    return tuple([answers[place] for place in sorted(answers)])


def _failure(
    failures: list[BaseException], landed: int, count: int, token: str | None
) -> BaseException:
    """Return the error of a request of which some parts failed."""
    doubts = [error for error in failures if isinstance(error, UnavailableError)]
    error = (doubts or failures)[0]
    if landed and isinstance(error, _SENT_AGAIN):
        message = f"{error}; other parts of the request have taken effect, so repeat all of it"
        return UnavailableError(message, request=token)
    if landed and isinstance(error, RejectedError):
        error.args = (f"{error}; {landed} of {count} were accepted, in other partitions",)
    return error


def _is_touchy(row: Any) -> bool:
    """Whether a client would send a job or completion again under another id."""
    if isinstance(row, NewJob):
        return bool(row.after) or is_side(row.payload_encoding)
    return isinstance(row, Completion) and (
        is_side(row.result_encoding) or any(is_side(job.payload_encoding) for job in row.follow_ups)
    )

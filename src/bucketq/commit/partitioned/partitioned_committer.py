"""``PartitionedCommitter``: the committer of a queue with partitions, over one for each of them.

A request goes to the partition that ``model.partitions`` says. Those that concern several are
divided, and each part is committed by itself, under the id of the whole request: if the outcome of
one is unknown, repeating the request repeats all of them, and each takes effect once.

=============================  =================================================================
operations                     where they go
=============================  =================================================================
push                           by group, key, unique name, batch, or id; several jobs are divided
claim                          to the partitions in turn (``spread_claim``)
heartbeat, complete, fail ...  by the lease, which names the partition
get, cancel, wait ...          to the partition that the id names, then to the others
list                           through the partitions in order
stats, limits, audit ...       to all, and answers are put together (``answer_sums``)
pause, configure, tokens ...   to all
schedules, workers             to partition 0
batches                        by the id of the batch
=============================  =================================================================

Consumers, bulk writes and the history are refused: they number what one object holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.commit.base import Committer
from bucketq.commit.outcome_errors import closed
from bucketq.commit.partitioned import answer_sums
from bucketq.commit.partitioned.divided_push import divide_jobs, divided
from bucketq.commit.partitioned.spread_claim import SpreadClaims
from bucketq.commit.request_ids import token_of
from bucketq.errors import InvalidRequestError, JobNotFoundError, UnavailableError
from bucketq.model import job_batches as batches
from bucketq.model import limits, schedules, worker_records
from bucketq.model import operations as ops
from bucketq.model import side_objects as side
from bucketq.model.audit_records import ReadAudit
from bucketq.model.operations import Request
from bucketq.model.partitions import (
    partition_at,
    partition_of,
    place_of,
    split_lease,
    with_partition,
)
from bucketq.model.results import FindArchived, Wait

A = TypeVar("A")
_Handler = Callable[[Request, float], Awaitable[Any]]

_HISTORY = "history_retention_s"
_SEQ_BITS = 40
"""A page of jobs begins after a number of one partition; the bits above it name the partition."""


class PartitionedCommitter:
    """Sends each request to the committers of the partitions that it concerns."""

    joins = False  # Each job may be in another partition.

    def __init__(
        self,
        where: str,
        count: int,
        make: Callable[[int], Committer],
        clock: Clock,
        *,
        timeout_s: float = 60.0,
    ) -> None:
        """Commit to a queue with so many partitions.

        ``make`` makes the committer of one; it is called for the others once that of partition 0
        is open, so that their objects can name the queue.
        """
        self.where = where
        self._count = count
        self._make = make
        self._timeout_s = timeout_s
        self._parts: list[Committer] = []
        self._claims = SpreadClaims(self._parts, count, clock)
        self._owners: dict[str, int] = {}
        """Which partition has an incarnation, for the names of side objects."""
        self._handlers = self._routes()
        self.is_open = False

    @property
    def mode(self) -> str:
        """How it commits, for messages."""
        how = self._parts[0].mode if self._parts else "closed"
        return f"{how}, {self._count} partitions"

    @property
    def version(self) -> int:
        """The lowest of the versions of the partitions.

        A request that was not sent before this was read has not been applied to any of them.
        """
        return min((part.version for part in self._parts), default=0)

    def _routes(self) -> dict[type, _Handler]:
        """Say what handles each operation; those that are not there are refused."""
        return {
            ops.Push: self._push,
            ops.Claim: self._claim,
            ops.Withdraw: self._withdraw,
            **dict.fromkeys((ops.Complete, ops.Fail, ops.Release), self._held),
            **dict.fromkeys((ops.Heartbeat, ops.CompleteMany, ops.ReleaseMany), self._held_several),
            **dict.fromkeys((ops.Get, ops.Cancel, ops.SetPriority), self._by_id),
            **dict.fromkeys((Wait, FindArchived), self._by_id),
            **dict.fromkeys((ops.Redrive, ops.Purge), self._dead),
            **dict.fromkeys((ops.Pause, ops.Resume, ops.Configure), self._everywhere),
            **dict.fromkeys((ops.GrantToken, ops.RevokeToken), self._everywhere),
            ops.ReadTokens: self._first_only,
            ops.List: self._list,
            ops.ReadStats: self._stats,
            ops.ReadSnapshot: self._snapshot,
            ReadAudit: self._audit,
            **dict.fromkeys((schedules.SetSchedule, schedules.RemoveSchedule), self._first_only),
            **dict.fromkeys((schedules.PauseSchedule, schedules.ResumeSchedule), self._first_only),
            **dict.fromkeys((schedules.RunSchedule, schedules.ReadSchedules), self._first_only),
            **dict.fromkeys(
                (worker_records.Announce, worker_records.DrainWorker), self._first_only
            ),
            worker_records.ReadWorkers: self._first_only,
            **dict.fromkeys((limits.SetLimit, limits.RemoveLimit), self._limit),
            limits.ReadLimits: self._limits,
            **dict.fromkeys((batches.OpenBatch, batches.CloseBatch), self._batch),
            **dict.fromkeys((batches.CancelBatch, batches.CancelJobs), self._batch),
            batches.ReadBatches: self._batch,
            side.StageObject: self._stage,
            **dict.fromkeys((side.PutPart, side.KeepObject), self._side_object),
            side.ReadPart: self._read_part,
        }

    async def open(self) -> None:
        """Open the partitions, the first one before the others."""
        try:
            self._parts[:] = [self._make(0)]
            await self._parts[0].open()
            self._parts += [self._make(index) for index in range(1, self._count)]
            await _all(part.open() for part in self._parts[1:])
        except BaseException:
            await self.close()
            raise
        self.is_open = True

    async def close(self) -> None:
        """Undo what was claimed and not returned, and close the partitions."""
        await self._claims.finish(self._timeout_s)
        self.is_open = False
        await asyncio.gather(*(part.close() for part in self._parts), return_exceptions=True)

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Commit a request, in one partition or several."""
        if not self.is_open:
            raise closed(self.where)
        handle = self._handlers.get(type(request.operation))
        if handle is None and self._count == 1:
            handle = self._first_only
        if handle is None:
            raise self._refused("this call")
        version = self.version
        try:
            return await handle(request, timeout_s)
        except UnavailableError as error:
            if error.request is None or type(request.operation) in _SINGLE:
                raise
            # The token of one partition has a version of its own, and the others are repeated too.
            raise UnavailableError(str(error), request=token_of(request, version)) from error

    def _refused(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"{self.where} has {self._count} partitions, and {what} is about one object: writes "
            "and streams of Spark, consumers and histories need a queue without partitions"
        )

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call."""
        return sum(await _all(part.flush_archive() for part in self._parts))

    async def _send(self, index: int, request: Request, timeout_s: float, operation: Any) -> Any:
        """Send an operation to a partition, under the id of a request."""
        return await self._parts[index].submit(replace(request, operation=operation), timeout_s)

    async def _send_all(self, request: Request, timeout_s: float) -> list[Any]:
        """Send a request to all partitions."""
        return await _all(part.submit(request, timeout_s) for part in self._parts)

    def _at_lease(self, lease: str, job: str) -> tuple[int, str]:
        """Return the partition of a lease, and the lease as that knows it."""
        plain, index = split_lease(lease)
        if index is None or index >= self._count:
            return partition_of(job, self._count), lease
        return index, plain

    async def _push(self, request: Request, timeout_s: float) -> Any:
        operation: Any = request.operation
        parts, alike = divide_jobs(request, self._count), type(operation.jobs)
        return await divided(
            parts,
            lambda index, jobs: self._send(index, request, timeout_s, ops.Push(jobs=alike(jobs))),
            lambda: token_of(request, self.version),
        )

    async def _claim(self, request: Request, timeout_s: float) -> Any:
        return await self._claims.claim(request, timeout_s)

    async def _withdraw(self, request: Request, timeout_s: float) -> int:
        return sum(await self._send_all(request, timeout_s))

    async def _held(self, request: Request, timeout_s: float) -> Any:
        """Send what is about one job that a worker holds."""
        operation: Any = request.operation
        index, lease = self._at_lease(operation.lease, operation.job)
        if isinstance(operation, ops.Complete):
            self._check_follow_ups(operation, index)
        return await self._send(index, request, timeout_s, replace(operation, lease=lease))

    async def _held_several(self, request: Request, timeout_s: float) -> Any:
        """Divide what is about several jobs that a worker holds; answers are in their order."""
        operation: Any = request.operation
        field = "jobs" if isinstance(operation, ops.CompleteMany) else "leases"
        parts: dict[int, list[tuple[int, Any]]] = {}
        for place, each in enumerate(getattr(operation, field)):
            index, lease = self._at_lease(each.lease, each.job)
            if isinstance(each, ops.Completion):
                self._check_follow_ups(each, index)
            parts.setdefault(index, []).append((place, replace(each, lease=lease)))

        async def send(index: int, rows: tuple[Any, ...]) -> Any:
            changes: dict[str, Any] = {field: rows}
            if isinstance(operation, ops.Heartbeat):
                names = {row.job for row in rows}
                progress = operation.progress.items()
                changes["progress"] = {job: each for job, each in progress if job in names}
            return await self._send(index, request, timeout_s, replace(operation, **changes))

        return await divided(parts, send, lambda: token_of(request, self.version))

    def _check_follow_ups(self, completion: ops.Complete | ops.Completion, index: int) -> None:
        for job in completion.follow_ups:
            if job.group or job.key is not None or job.unique is not None:
                self._check_place(place_of(job), index, "the job that it follows is")

    def _check_place(self, place: str, index: int, other: str) -> None:
        found = partition_at(place, self._count)
        if found != index:
            what, _, name = place.partition("=")
            message = (
                f"{what} {name!r} is in partition {found} of {self.where}, and {other} in "
                f"partition {index}: what is committed together must be in one partition"
            )
            raise InvalidRequestError(message)

    async def _by_id(self, request: Request, timeout_s: float) -> Any:
        """Ask the partition that the id of a job names and, if it is not there, the others.

        It may be in another one because of its group or key.
        """
        answer, index = await self._find(request, timeout_s)
        if isinstance(request.operation, ops.Get) and answer.lease is not None:
            answer = replace(answer, lease=with_partition(answer.lease, index))
        return answer

    async def _find(self, request: Request, timeout_s: float) -> tuple[Any, int]:
        operation: Any = request.operation
        own = partition_of(operation.job, self._count)
        try:
            return await self._parts[own].submit(request, timeout_s), own
        except JobNotFoundError as error:
            missing = error
        if isinstance(operation, FindArchived):
            raise missing  # All partitions have the same archive.

        async def look(index: int) -> tuple[Any, int]:
            return await self._parts[index].submit(request, timeout_s), index

        others = [index for index in range(self._count) if index != own]
        return await _first(map(look, others), missing)

    async def _dead(self, request: Request, timeout_s: float) -> int:
        """Redrive or purge, in one partition after the other."""
        operation: Any = request.operation
        count = 0
        if operation.jobs:
            parts: dict[int, list[str]] = {}
            for job in operation.jobs:
                try:
                    _, index = await self._find(Request(ops.Get(job=job)), timeout_s)
                except JobNotFoundError:
                    index = partition_of(job, self._count)
                parts.setdefault(index, []).append(job)
            for index, jobs in sorted(parts.items()):
                part = replace(operation, jobs=tuple(jobs))
                count += await self._send(index, request, timeout_s, part)
            return count
        for index in range(self._count):
            limit = operation.limit - count if operation.limit else 0
            if operation.limit and limit <= 0:
                break
            part = replace(operation, limit=limit)
            count += await self._send(index, request, timeout_s, part)
        return count

    async def _everywhere(self, request: Request, timeout_s: float) -> Any:
        """Send a change to partition 0, which may refuse it, and then to the others."""
        operation = request.operation
        changes = operation.changes if isinstance(operation, ops.Configure) else {}
        if changes.get(_HISTORY) and self._count > 1:
            raise self._refused(_HISTORY)
        answer = await self._parts[0].submit(request, timeout_s)
        if not isinstance(operation, ops.Configure) or operation.changes:
            others = await _all(part.submit(request, timeout_s) for part in self._parts[1:])
            if isinstance(operation, ops.RevokeToken):
                answer = any([answer, *others])
        return answer

    async def _first_only(self, request: Request, timeout_s: float) -> Any:
        operation = request.operation
        if isinstance(operation, schedules.SetSchedule):
            job = operation.job
            if job.group or job.key is not None or job.unique is not None:
                self._check_place(place_of(job), 0, "schedules are")
        return await self._parts[0].submit(request, timeout_s)

    async def _list(self, request: Request, timeout_s: float) -> ops.Page:
        operation: Any = request.operation
        index, after = operation.after >> _SEQ_BITS, operation.after & ((1 << _SEQ_BITS) - 1)
        if index >= self._count:
            return ops.Page((), None)
        page: ops.Page
        page = await self._send(index, request, timeout_s, replace(operation, after=after))
        following = None
        if page.next_after is not None:
            following = (index << _SEQ_BITS) + page.next_after
        elif index + 1 < self._count:
            following = (index + 1) << _SEQ_BITS
        return ops.Page(page.jobs, following)

    async def _stats(self, request: Request, timeout_s: float) -> Any:
        return answer_sums.add_stats(await self._send_all(request, timeout_s))

    async def _snapshot(self, request: Request, timeout_s: float) -> Any:
        return answer_sums.join_snapshots(await self._send_all(request, timeout_s))

    async def _audit(self, request: Request, timeout_s: float) -> Any:
        operation: Any = request.operation
        return answer_sums.join_audits(await self._send_all(request, timeout_s), operation.limit)

    async def _limit(self, request: Request, timeout_s: float) -> Any:
        """Send the limit of a group to its partition, and that of every group to all."""
        operation: Any = request.operation
        target: str = operation.target
        is_kind = target.startswith(limits.kind_target(""))
        if is_kind and isinstance(operation, limits.SetLimit) and self._count > 1:
            message = (
                f"{self.where} has {self._count} partitions, and the jobs of a kind are in all of "
                "them: limit groups, or use a queue without partitions"
            )
            raise InvalidRequestError(message)
        if target == limits.group_target(limits.EVERY_GROUP):
            return await self._everywhere(request, timeout_s)
        index = partition_at(target, self._count)
        return await self._parts[index].submit(request, timeout_s)

    async def _limits(self, request: Request, timeout_s: float) -> Any:
        operation: Any = request.operation
        if operation.group:
            index = partition_at(limits.group_target(operation.group), self._count)
            return await self._parts[index].submit(request, timeout_s)
        return answer_sums.join_limits(await self._send_all(request, timeout_s))

    async def _batch(self, request: Request, timeout_s: float) -> Any:
        operation: Any = request.operation
        if not operation.batch:
            return answer_sums.join_batches(await self._send_all(request, timeout_s))
        index = partition_of(operation.batch, self._count)
        on_done = operation.on_done if isinstance(operation, batches.OpenBatch) else None
        if on_done is not None and on_done.group:
            self._check_place(place_of(on_done), index, "the batch is")
        return await self._parts[index].submit(request, timeout_s)

    async def _stage(self, request: Request, timeout_s: float) -> side.Staged:
        operation: Any = request.operation
        index = partition_at(operation.place, self._count)
        staged: side.Staged
        staged = await self._send(index, request, timeout_s, replace(operation, place=""))
        if staged.object:
            self._owners[staged.object.partition("/")[0]] = index
        return staged

    async def _side_object(self, request: Request, timeout_s: float) -> Any:
        operation: Any = request.operation
        index = self._owners.get(operation.object.partition("/")[0], 0)
        if isinstance(operation, side.PutPart) and operation.content == "payload":
            operation = replace(operation, job="")  # The push may give its job another id.
        return await self._send(index, request, timeout_s, operation)

    async def _read_part(self, request: Request, timeout_s: float) -> Any:
        """Ask the partition of the lease, or any: all have the same side objects."""
        operation: Any = request.operation
        index, lease = (
            self._at_lease(operation.lease, operation.job) if operation.lease else (0, "")
        )
        return await self._send(index, request, timeout_s, replace(operation, lease=lease))


async def _all(calls: Iterable[Awaitable[A]]) -> list[A]:
    """Return all answers, or raise the first error once all calls have ended."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    doubts = [error for error in errors if isinstance(error, UnavailableError)]
    for error in doubts or errors:
        raise error
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _first(calls: Iterable[Awaitable[A]], missing: JobNotFoundError) -> A:
    """Return the first answer; if the job is nowhere, raise ``missing``."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    trouble: BaseException = missing
    try:
        left: Sequence[asyncio.Future[A]] = tasks
        while left:
            await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                if not task.done():
                    continue
                error = task.exception()
                if error is None:
                    return task.result()
                if not isinstance(error, JobNotFoundError):
                    trouble = error
            left = [task for task in left if not task.done()]
        raise trouble
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_SINGLE = frozenset({ops.Complete, ops.Fail, ops.Release})
"""Operations that always go to the same one partition."""

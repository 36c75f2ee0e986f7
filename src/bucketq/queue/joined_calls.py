"""``JoinedCalls``: sends what many callers ask for at the same time as one request.

A request takes a queue and its client the same steps for one job as for a hundred. So pushes,
completions, and claims of one job that do not wait are joined, if they are made in the same turn of
the event loop. Each keeps its id (``Request.numbers``), so every caller has the answer, the
error and the token of its own call. If all are rejected together, each is sent by itself: then only
those are rejected that are the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from copy import copy
from itertools import chain, islice
from typing import Any

from msgspec import Struct, structs

from bucketq.commit.base import Committer
from bucketq.commit.request_ids import UNJUDGED, RequestId, parse_token, token_of
from bucketq.commit.upkeep.background import Background
from bucketq.errors import BucketQError, NotDurableError, SupersededError, UnavailableError
from bucketq.model import operations as ops
from bucketq.model.base import NewJob, row_bytes
from bucketq.model.requests.plain_jobs import PlainJobs, completions

_MAX_CALLS = 200
"""How many are joined: more cost as much each, and all wait for the last one."""
_MAX_BYTES = 64 * 1024
"""How many bytes of payloads or results are joined: a request is less than a segment, and the copy
of a large payload costs more than the steps that are saved."""
_MAX_BATCH_BYTES = 1024 * 1024
"""How many bytes of rows pushes of several jobs have together: enough that a queue puts them in a
segment first, which takes less CPU than the object does, and few enough that it works on one
request while the client makes the next."""
_BATCHES = "batches"
_FOR_ALL = (UnavailableError, NotDurableError, SupersededError, *UNJUDGED)
"""Errors that say nothing about one of the requests: each would have the same by itself."""

ALONE: Any = object()
"""What a call is answered that is sent by its caller, because there is no other."""


class CallGroup:
    """Calls that are sent together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.calls: list[JoinedCall] = []
        self.size_bytes = 0
        self.is_over = asyncio.Event()
        """Whether all have their answers."""


class JoinedCall(Struct, eq=False):
    """One call, and the group that it is sent with."""

    request_id: RequestId
    operation: Any
    answer: asyncio.Future[Any]
    group: CallGroup

    @property
    def number(self) -> int:
        """The number of its request."""
        return self.request_id.number

    def resolve(self, answer: Any) -> None:
        """Answer the caller, unless it is gone."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """Let the caller raise an error, unless it is gone."""
        if not self.answer.done():
            self.answer.set_exception(error)


class JoinedCalls:
    """Calls of one queue that are about to be sent."""

    def __init__(self, committer: Committer, timeout_s: float) -> None:
        """Send to ``committer``, and wait up to ``timeout_s`` for each answer."""
        self._committer = committer
        self._timeout_s = timeout_s
        self._open: dict[Hashable, CallGroup] = {}
        """Groups that take more calls, by what their calls have in common."""
        self._full: list[CallGroup] = []
        self.made_ms: int | None = None
        """When the calls of this turn were made; None: there are none yet."""
        self._background = Background()

    async def close(self) -> None:
        """Wait until all calls have their answers."""
        await self._background.finish(self._timeout_s)

    def add(self, request_id: RequestId, operation: Any) -> JoinedCall | None:
        """Send a call together with others, if there are any; None: it cannot be joined."""
        kind = type(operation)
        shared: Hashable = None
        most_bytes = _MAX_BYTES
        if kind is ops.Push and len(operation.jobs) == 1 and not operation.jobs[0].after:
            size_bytes = len(operation.jobs[0].payload)
        elif kind is ops.Push and _is_batch(operation.jobs):
            size_bytes = row_bytes(operation.jobs)
            shared, most_bytes = _BATCHES, _MAX_BATCH_BYTES
        elif kind is ops.Complete and not operation.follow_ups:
            size_bytes = len(operation.result)
        elif kind is ops.Claim and _is_plain(operation):
            size_bytes = 0
            shared = (operation.worker, operation.kinds, operation.lease_s)
        else:
            return None
        if size_bytes > most_bytes or request_id.since is not None:
            return None
        group = self._group((kind, request_id.session, shared), request_id, size_bytes, most_bytes)
        call = JoinedCall(request_id, operation, group.loop.create_future(), group)
        group.calls.append(call)
        group.size_bytes += size_bytes
        return call

    def _group(
        self, key: Hashable, request_id: RequestId, size_bytes: int, most_bytes: int
    ) -> CallGroup:
        """Return the group that takes the next call."""
        group = self._open.get(key)
        if group is not None:
            if len(group.calls) < _MAX_CALLS and group.size_bytes + size_bytes <= most_bytes:
                return group
            self._full.append(group)
        loop = asyncio.get_running_loop()
        if not self._open:
            self.made_ms = request_id.made_ms
            loop.call_soon(self._send_all)
        group = self._open[key] = CallGroup(loop)
        return group

    def _send_all(self) -> None:
        groups = [*self._full, *self._open.values()]
        self._full, self._open, self.made_ms = [], {}, None
        for group in groups:
            # Callers that were cancelled in this turn have sent nothing.
            group.calls = [call for call in group.calls if not call.answer.done()]
            if len(group.calls) > 1:
                group.calls.sort(key=lambda call: call.request_id.number)
                self._background.start(self._send(group))
                continue
            for call in group.calls:
                call.resolve(ALONE)
            group.is_over.set()

    async def _send(self, group: CallGroup) -> None:
        try:
            await self._send_joined(group)
        finally:
            for call in group.calls:
                call.answer.cancel()  # It has an answer, unless this task was cancelled.
            group.is_over.set()

    async def _send_joined(self, group: CallGroup) -> None:
        calls = group.calls
        request = structs.replace(
            calls[0].request_id.request(_joined(calls)),
            acknowledged_below=calls[-1].request_id.acknowledged_below,
            numbers=tuple([call.number for call in calls]),
            counts=_counts(calls),
        )
        version = self._committer.version
        try:
            answers = await self._committer.submit(request, self._timeout_s)
        except _FOR_ALL as error:
            for call in calls:
                call.fail(_own_error(error, request, call))
            return
        except Exception:  # noqa: BLE001 - whatever it is, only its reason must fail
            await self._send_each(calls, version)
            return
        kind = type(request.operation)
        if kind is ops.CompleteMany:
            for call, held in zip(calls, answers, strict=True):
                if held:
                    call.resolve(None)
            lost = [call for call, held in zip(calls, answers, strict=True) if not held]
            await self._send_each(lost, version)  # For an error that says why.
            return
        for call, answer in zip(calls, _cut(answers, request.counts), strict=kind is ops.Push):
            call.resolve(answer)
        for call in calls[len(answers) :]:
            call.resolve(())

    async def _send_each(self, calls: Sequence[JoinedCall], version: int) -> None:
        """Send each by itself; none was applied before ``version``."""
        left = [call for call in calls if not call.answer.done()]
        await asyncio.gather(*(self._send_alone(call, version) for call in left))

    async def _send_alone(self, call: JoinedCall, since: int | None = None) -> None:
        request = structs.replace(call.request_id, since=since).request(call.operation)
        try:
            call.resolve(await self._committer.submit(request, self._timeout_s))
        except Exception as error:  # noqa: BLE001 - the caller must get it, whatever it is
            call.fail(error)


def _cut(answers: Sequence[Any], counts: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return what each call is answered: as many as its count says, or one."""
    if not counts:
        return [(answer,) for answer in answers]
    rest = iter(answers)
    return [tuple(islice(rest, count)) for count in counts]


def _is_batch(jobs: tuple[NewJob, ...]) -> bool:
    """Whether a push has several jobs that wait for no others."""
    if isinstance(jobs, PlainJobs):
        return len(jobs) > 1
    return len(jobs) > 1 and not any(job.after for job in jobs)


def _is_plain(claim: ops.Claim) -> bool:
    """Whether a claim takes one job and does not wait; what makes no sense is rejected alone."""
    is_one = type(claim.limit) is int and claim.limit == 1
    return is_one and not claim.wait_s and isinstance(claim.worker, str)


def _joined(calls: Sequence[JoinedCall]) -> ops.AnyOperation:
    """Return one operation for all calls of a group, which are of one kind."""
    first = calls[0].operation
    if type(first) is ops.Push:
        are_plain = all(isinstance(call.operation.jobs, PlainJobs) for call in calls)
        jobs = [*chain.from_iterable([call.operation.jobs for call in calls])]
        return ops.Push(jobs=PlainJobs(jobs) if are_plain else tuple(jobs))
    if type(first) is ops.Claim:
        return structs.replace(first, limit=len(calls))
    return ops.CompleteMany(jobs=completions([_completion(call.operation) for call in calls]))


def _counts(calls: Sequence[JoinedCall]) -> tuple[int, ...]:
    """Return how many jobs each push has, if that is not one each."""
    if type(calls[0].operation) is not ops.Push:
        return ()
    counts = tuple([len(call.operation.jobs) for call in calls])
    return counts if max(counts) > 1 else ()


def _completion(done: ops.Complete) -> ops.Completion:
    return ops.Completion(
        job=done.job, lease=done.lease, result=done.result, result_encoding=done.result_encoding
    )


def _own_error(error: BucketQError, request: ops.Request, call: JoinedCall) -> BucketQError:
    """Return the error of a joined request as that of one call, with a token for it alone."""
    own = copy(error)
    if isinstance(own, UnavailableError | NotDurableError) and own.request is not None:
        since = parse_token(own.request, type(request.operation)).since or 0
        own.request = token_of(call.request_id.request(call.operation), since)
    return own

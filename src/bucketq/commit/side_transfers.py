"""``SideTransfers``: how a committer moves parts of large payloads and results, beside its commits.

Nothing of them is kept: a part goes from the request to the store, or from the store to the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from bucketq.archive.side_folder import SideFolder
from bucketq.commit.outcome_errors import closed
from bucketq.commit.pending_requests import PendingRequest
from bucketq.commit.upkeep.background import Background
from bucketq.errors import (
    InvalidRequestError,
    LeaseLostError,
    OverloadedError,
    PayloadLostError,
    UploadExpiredError,
)
from bucketq.model import check
from bucketq.model.side_objects import (
    PART_BYTES,
    KeepObject,
    PutPart,
    ReadPart,
    is_object_name,
    refs_of,
    until_of,
)
from bucketq.model.state import State
from bucketq.store.base import ObjectMissingError

Transfer = PutPart | KeepObject | ReadPart

_AT_ONCE = 8
_MOST_WAITING = 64
"""How many parts are moved at once, and wait for that: each takes a mebibyte of memory."""
_MOST_PARTS = 5 * 1024
"""The largest payload has 5 GiB."""
_RELOADED_S = 0.05
"""How often a state that is being read again is looked for."""


class SideTransfers:
    """Answers the operations that move parts of side objects."""

    def __init__(self, folder: SideFolder, where: str, state: Callable[[], State | None]) -> None:
        """Use a folder; ``state`` returns the newest state, or None while it is read again."""
        self._folder = folder
        self._where = where
        self._state = state
        self._background = Background()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    def start(
        self, pending: PendingRequest, refusal: Callable[[PendingRequest], Exception | None]
    ) -> None:
        """Answer a request, unless it is refused now or when the answer is there."""
        if self._waiting >= _MOST_WAITING:
            message = f"{self._waiting} parts of large payloads wait already: try again later"
            pending.resolve(None, OverloadedError(message, retry_after_s=0.2))
            return
        self._waiting += 1
        self._background.start(self._answer(pending, refusal))

    async def move(self, operation: Transfer) -> bytes | None:
        """Answer a request of this process.

        Raises:
            PayloadLostError: The part is missing.
            UploadExpiredError: It is too late to name the object, so it need not be written.
            LeaseLostError: The job is not held under the lease that is shown.
            UnavailableError: The storage did not answer.
        """
        if not is_object_name(operation.object):
            raise InvalidRequestError(f"{operation.object!r} is not the name of a side object")
        if isinstance(operation, KeepObject):
            job = (await self._known()).jobs.by_id.get(operation.job)
            if job is not None and operation.object in [ref.object for ref in refs_of(job)]:
                await self._folder.unmark(operation.object)
            return None
        check.whole_number(operation.part, "part", 0, _MOST_PARTS)
        if isinstance(operation, ReadPart):
            return await self._read(operation)
        await self._put(operation)
        return None

    async def stop(self) -> None:
        """Stop all transfers; their callers get no answer from here."""
        await self._background.finish(0)

    async def _put(self, operation: PutPart) -> None:
        if operation.job:
            check.name(operation.job, "job id")
        if not 0 < len(operation.data) <= PART_BYTES:
            raise InvalidRequestError(f"a part has 1 to {PART_BYTES:,} bytes")
        state, name = await self._known(), operation.object
        if name.partition("/")[0] != state.incarnation or state.version >= until_of(name):
            message = f"{name} cannot be named any more: write it again under another name"
            raise UploadExpiredError(message)
        job, content = operation.job, operation.content
        await self._folder.put_marked(name, operation.part, operation.data, job, content)

    async def _read(self, operation: ReadPart) -> bytes:
        if operation.lease:
            job = (await self._known()).jobs.by_id.get(operation.job)
            is_held = job is not None and job.status == "running" and job.lease == operation.lease
            refs = refs_of(job) if job is not None and is_held else []
            if operation.object not in [ref.object for ref in refs]:
                message = (
                    f"lease lost: job {operation.job} is not held any more; stop working on it"
                )
                raise LeaseLostError(message)
        try:
            return await self._folder.read_part(operation.object, operation.part)
        except ObjectMissingError as error:
            message = (
                f"part {operation.part} of the side object {operation.object} of {self._where} is "
                "missing: it was deleted, and only its job is affected (`bucketq doctor --deep` "
                "checks all of them)"
            )
            raise PayloadLostError(message) from error

    async def _known(self) -> State:
        while (state := self._state()) is None:  # noqa: ASYNC110 - nothing says when it is read
            await asyncio.sleep(_RELOADED_S)
        return state

    async def _answer(
        self, pending: PendingRequest, refusal: Callable[[PendingRequest], Exception | None]
    ) -> None:
        try:
            async with self._turn:
                error, answer = refusal(pending), None
                if error is None and not pending.is_resolved:
                    answer = await self.move(cast("Transfer", pending.request.operation))
                    error = refusal(pending)  # The token may have been revoked meanwhile.
                pending.resolve(None if error else answer, error)
        except asyncio.CancelledError:
            pending.resolve(None, closed(self._where))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the request is answered with it
            pending.resolve(None, error)
        finally:
            self._waiting -= 1

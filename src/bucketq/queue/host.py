"""What every queue does for itself while it is open in a process.

It opens and closes, refuses to work where it could only hang (closed, forked, another event
loop), wakes those who wait for jobs, gives back what cancelled claims have taken, and lets an
archiver run behind everybody's back. How a request is committed is for the subclass to say.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from typing import Any

from bucketq.archive import SegmentWriter
from bucketq.clock import Clock
from bucketq.codec import Document
from bucketq.errors import ClosedError, UnavailableError
from bucketq.model.operations import Request
from bucketq.model.state import State
from bucketq.queue.outbox import Archiver
from bucketq.queue.register import Register
from bucketq.queue.requests import token_of

_LAST_POLL_S = 1.0
_SHORTEST_WAIT_S = 0.005


class Host(ABC):
    """A queue object that is open in this process."""

    _first_poll_s = _LAST_POLL_S
    """How soon the object is looked at again for what others have pushed; later it is slower."""

    def __init__(
        self,
        register: Register,
        clock: Clock,
        *,
        timeout_s: float,
        create: bool,
        archive: SegmentWriter | None,
    ) -> None:
        """Take what is needed to open the queue."""
        self._register = register
        self._clock = clock
        self._where = register.where
        self._timeout_s = timeout_s
        self._create = create
        self._document: Document | None = None
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed: str | None = "is not open yet: use `async with bucketq.connect(...)`"
        self._changed = asyncio.Event()
        self._poll_s = self._first_poll_s
        self._background: dict[int, asyncio.Task[Any]] = {}
        self._archiver = None if archive is None else Archiver(self._submit, archive, clock)
        self._archiving: asyncio.Task[None] | None = None

    @abstractmethod
    async def _submit(self, request: Request) -> Any:
        """Commit a request and return its answer, or raise what was answered."""

    async def _open(self) -> None:
        """Load or create the queue."""
        try:
            async with asyncio.timeout(self._timeout_s):
                self._document = await self._register.open(create=self._create)
        except TimeoutError as error:
            message = f"{self._where} could not be read within {self._timeout_s:g} s{self._why()}"
            raise UnavailableError(message) from self._register.trouble or error
        self._loop = asyncio.get_running_loop()
        self._closed = None
        if self._archiver is not None:
            archiving = self._archiver.run(self._current_state)
            self._archiving = self._loop.create_task(archiving)

    async def _close(self) -> None:
        """Take no more requests, once what runs in the background is done."""
        if self._archiving is not None:
            self._archiving.cancel()
            await asyncio.wait([self._archiving])
        for task in list(self._background.values()):
            await asyncio.wait([task])
        self._closed = self._closed or "is closed: connect again"
        self._announce()

    def _guard(self) -> None:
        """Refuse to work where it could only hang."""
        if os.getpid() != self._process:
            message = (
                f"the queue {self._where} was opened by process {self._process} and is used in "
                f"{os.getpid()}: connect again after a fork"
            )
            raise ClosedError(message)
        if self._closed is not None:
            message = f"the queue {self._where} {self._closed}"
            raise ClosedError(message)
        if asyncio.get_running_loop() is not self._loop:
            message = (
                f"the queue {self._where} belongs to another event loop: connect in the loop "
                "that uses it, or use `bucketq.connect_sync`"
            )
            raise ClosedError(message)

    def _finish_later(self, task: asyncio.Task[Any]) -> None:
        """Let a task run on; closing waits for it."""
        number = id(task)
        self._background[number] = task
        task.add_done_callback(lambda _: self._background.pop(number, None))

    def _unknown(self, request: Request, version: int) -> UnavailableError:
        """What a caller is told who has waited long enough; he may send the request again."""
        message = (
            f"{self._where} gave no certain answer in {self._timeout_s:g} s{self._why()}: the "
            "outcome is unknown; try again with the same request"
        )
        return UnavailableError(message, request=token_of(request, version))

    def _why(self) -> str:
        trouble = self._register.trouble
        return "" if trouble is None else f" ({trouble})"

    def _announce(self) -> None:
        """Wake whoever waits for jobs in this process."""
        self._changed.set()
        self._changed = asyncio.Event()
        self._poll_s = self._first_poll_s

    async def _arrival(self, changed: asyncio.Event, wait_s: float) -> None:
        """Wait for a change made here, the next delayed job, or the time to look again."""
        self._poll_s = min(2 * self._poll_s, _LAST_POLL_S)
        wait_s = min(wait_s, self._poll_s)
        state = self._current_state()
        due = state.next_due() if state else None
        if due is not None:
            due_s = (due - self._clock.now()).total_seconds()
            wait_s = min(wait_s, max(_SHORTEST_WAIT_S, due_s))
        try:
            async with asyncio.timeout(wait_s):
                await changed.wait()
        except TimeoutError:
            return

    def _current_state(self) -> State | None:
        return self._document.state if self._document else None

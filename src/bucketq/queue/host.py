"""What every queue does for itself while it is open in a process.

It refuses to work where it could only hang (closed, forked, another event loop), and lets what
cancelled callers have left behind run on. How a request is committed is for the subclass to say.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from typing import Any

from bucketq.clock import Clock
from bucketq.commit.request_ids import token_of
from bucketq.errors import ClosedError, NotDurableError, UnavailableError
from bucketq.model.operations import READS, Claim, Request


class Host(ABC):
    """A queue that is used in this process."""

    def __init__(self, where: str, clock: Clock, *, timeout_s: float) -> None:
        """Take what messages call the queue, and how long a request may be without an answer."""
        self._where = where
        self._clock = clock
        self._timeout_s = timeout_s
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed: str | None = "is not open yet: use `async with bucketq.connect(...)`"
        self._background: dict[int, asyncio.Task[Any]] = {}

    @abstractmethod
    async def _submit(self, request: Request) -> Any:
        """Commit a request and return its answer, or raise what was answered.

        A claim that may wait (``wait_s``) is held until there is a job, or its time is over.
        """

    @abstractmethod
    def withdraw(self, claim: Claim) -> None:
        """Let a claim wait no longer: its caller is gone. What it has got is given back."""

    def _begin(self) -> None:
        """Take requests from now on."""
        self._loop = asyncio.get_running_loop()
        self._closed = None

    async def _end(self) -> None:
        """Take no more requests, once what runs in the background is done or has had its time."""
        left = set(self._background.values())
        if left:
            _, left = await asyncio.wait(left, timeout=self._timeout_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._closed = self._closed or "is closed: connect again"

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

    def _unknown(
        self, request: Request, version: int, limit: str | None = None
    ) -> UnavailableError:
        """The error of a request whose time is over; it may be sent again."""
        limit = f"in {self._timeout_s:g} s" if limit is None else limit
        if isinstance(request.operation, READS):
            message = f"{self._where} could not be read {limit}{self._why()}: try again"
            return UnavailableError(message)
        message = (
            f"{self._where} gave no certain answer {limit}{self._why()}: the outcome is unknown; "
            "try again with the same request"
        )
        return UnavailableError(message, request=token_of(request, version))

    def _still_unknown(self, request: Request, error: Exception) -> UnavailableError:
        """What a caller is told whose request was sent before and is turned away now."""
        message = (
            f"{self._where} rejected a repeated request, whose first try may have taken effect: "
            f"{error}. The outcome is unknown; try again with the same request"
        )
        return UnavailableError(message, request=token_of(request, 0))

    def _stopped(self, error: NotDurableError, request: Request, version: int) -> NotDurableError:
        """What a caller is told whose request may be lost with the power, or may never be."""
        return NotDurableError(str(error), request=token_of(request, version))

    def _why(self) -> str:
        """What is known of the reason, as the end of a sentence."""
        return ""

"""``ObjectQueue``: a queue whose object this process reads and writes by itself.

It loads or creates the object, and lets an archiver run behind everybody's back. A direct queue,
group commit and a broker's leader are such queues; a client of a broker is not.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from bucketq.archive import ArchiveWriter
from bucketq.clock import Clock
from bucketq.codec import Document
from bucketq.commit.archiver import Archiver
from bucketq.commit.register import Register
from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.model import timekeeping
from bucketq.model.operations import NoteTime, Request, Tidy
from bucketq.model.operators import is_untidy
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.queue.verbs import Verbs

T = TypeVar("T")


class ObjectQueue(Verbs[T]):
    """A queue object that is open in this process."""

    def __init__(
        self,
        register: Register,
        clock: Clock,
        *,
        payload_type: Any = Any,
        worker: str = "worker",
        timeout_s: float = 60.0,
        create: bool = True,
        archive: ArchiveWriter | None = None,
    ) -> None:
        """Make a queue over a register; ``async with`` opens it.

        Args:
            register: The object.
            clock: Time and entropy.
            payload_type: What payloads are decoded into.
            worker: The name under which jobs are claimed.
            timeout_s: How long an operation is tried before its outcome is called unknown, and
                how long closing waits for what is under way.
            create: Whether to create the queue where there is none.
            archive: Where finished jobs go; without it they stay in the queue.
        """
        super().__init__(
            register.where, clock, payload_type=payload_type, worker=worker, timeout_s=timeout_s
        )
        self._register = register
        self._create = create
        self._document: Document | None = None
        self._archiver = None if archive is None else Archiver(self._submit, archive, clock)
        self._archiving: asyncio.Task[None] | None = None

    @property
    def version(self) -> int:
        """The newest version of the object that it has seen or written."""
        return self._register.version

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call."""
        self._guard()
        if self._archiver is None:
            message = f"the queue {self._where} was opened without an archive"
            raise InvalidRequestError(message)
        return await self._archiver.flush()

    async def _open(self) -> None:
        """Load or create the queue, and begin."""
        try:
            async with asyncio.timeout(self._timeout_s):
                self._document = await self._first_document()
        except TimeoutError as error:
            message = f"{self._where} could not be read within {self._timeout_s:g} s{self._why()}"
            raise UnavailableError(message) from self._register.trouble or error
        self._begin()
        if self._archiver is not None:
            archiving = self._archiver.run(self._current_state)
            self._archiving = asyncio.get_running_loop().create_task(archiving)

    async def _first_document(self) -> Document:
        return await self._register.open(create=self._create)

    def _keep_tidy(self, state: State) -> None:
        """Add to a commit what the writer does by itself: note the time, drop what is too old."""
        now = self._clock.now()
        if timekeeping.is_due(state, now):
            apply(state, Request(NoteTime()), now)
        if is_untidy(state, now):
            apply(state, Request(Tidy()), now)

    async def _close(self) -> None:
        """Archive no more, and take no more requests."""
        if self._archiving is not None:
            self._archiving.cancel()
            await asyncio.wait([self._archiving])
        await self._end()

    def _why(self) -> str:
        trouble = self._register.trouble
        return "" if trouble is None else f" ({trouble})"

    def _current_state(self) -> State | None:
        return self._document.state if self._document else None

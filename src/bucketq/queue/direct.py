"""``DirectQueue``: every operation reads the object, changes it, and writes it back by itself.

It needs no other process and holds nothing that could be lost. Each change costs a write of
the whole object, and writers who meet try again, so it suits a few operations a second.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.codec import Document
from bucketq.errors import UnavailableError
from bucketq.model.operations import Claim, Request, Tidy
from bucketq.model.operators import is_untidy
from bucketq.model.transitions import Applied, apply
from bucketq.queue.leases import LeaseWatch
from bucketq.queue.pace import Backoff
from bucketq.queue.register import Register, Verdict
from bucketq.queue.requests import token_of
from bucketq.queue.verbs import Verbs

T = TypeVar("T")

_FIRST_RETRY_S = 0.01
_LAST_RETRY_S = 1.0
_FIRST_POLL_S = 0.05
_LAST_POLL_S = 1.0
_SHORTEST_WAIT_S = 0.005


class DirectQueue(Verbs[T]):
    """A queue whose every operation is one compare-and-set of the object."""

    def __init__(
        self,
        register: Register,
        clock: Clock,
        *,
        payload_type: Any = Any,
        worker: str = "direct",
        timeout_s: float = 60.0,
        create: bool = True,
    ) -> None:
        """Make a queue over a register; ``async with`` opens it.

        Args:
            register: The object.
            clock: Time and entropy.
            payload_type: What payloads are decoded into.
            worker: The name under which jobs are claimed.
            timeout_s: How long an operation is tried before its outcome is called unknown.
            create: Whether to create the queue where there is none.
        """
        super().__init__(
            payload_type=payload_type, worker=worker, where=register.where, clock=clock
        )
        self._register = register
        self._timeout_s = timeout_s
        self._create = create
        self._document: Document | None = None
        self._turn = asyncio.Lock()
        self._leases = LeaseWatch()
        self._changed = asyncio.Event()
        self._poll_s = _FIRST_POLL_S

    async def __aenter__(self) -> DirectQueue[T]:
        """Load or create the queue."""
        try:
            async with asyncio.timeout(self._timeout_s):
                self._document = await self._register.open(create=self._create)
        except TimeoutError as error:
            message = f"{self._where} could not be read within {self._timeout_s:g} s"
            raise UnavailableError(message) from error
        self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for operations under way, then close."""
        await self._settle_abandoned()
        self._closed = "is closed: connect again"
        self._announce()
        async with self._turn:
            self._document = None

    async def _submit(self, request: Request) -> Any:
        """Commit one request, trying again until it is certain or the time is over."""
        attempts = _Attempts(request)
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                return await self._try_until_certain(attempts)
        except TimeoutError as error:
            message = (
                f"{self._where} gave no certain answer in {self._timeout_s:g} s: the outcome is "
                "unknown; try again with the same request"
            )
            token = token_of(attempts.request, self._register.version)
            raise UnavailableError(message, request=token) from error

    async def _try_until_certain(self, attempts: _Attempts) -> Any:
        backoff = Backoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        while True:
            # Whatever interrupts this leaves no half-changed state behind.
            document, self._document = self._document, None
            try:
                document = await (
                    self._register.load() if document is None else self._register.refresh(document)
                )
            except UnavailableError:
                await backoff.wait()
                continue
            applied = self._apply(document, attempts.request)
            if not document.state.has_changes:
                self._document = document
                return applied.result()
            base_version = self._register.version
            settled = await self._register.commit(document, self._register.prepare(document))
            self._document = settled.document
            if settled.verdict is Verdict.LANDED:
                self._announce()
                return applied.result()
            if settled.verdict is Verdict.FORGOTTEN:
                attempts.request = replace(attempts.request, since=base_version)
            await backoff.wait()

    def _apply(self, document: Document, request: Request) -> Applied:
        state, now = document.state, self._clock.now()
        if isinstance(request.operation, Claim) and state.broker is None:
            monotonic_s = asyncio.get_running_loop().time()
            for expire in self._leases.stale(state, now, monotonic_s):
                apply(state, Request(expire), now)
        applied = apply(state, request, now)
        if state.has_changes and is_untidy(state, now):
            apply(state, Request(Tidy()), now)
        return applied

    def _announce(self) -> None:
        """Wake whoever waits for jobs in this process."""
        self._changed.set()
        self._changed = asyncio.Event()
        self._poll_s = _FIRST_POLL_S

    def _next_change(self) -> asyncio.Event:
        return self._changed

    async def _arrival(self, changed: asyncio.Event, wait_s: float) -> None:
        """Wait for a change made here, the next delayed job, or the time to look again."""
        self._poll_s = min(2 * self._poll_s, _LAST_POLL_S)
        wait_s = min(wait_s, self._poll_s)
        due = self._document.state.next_due() if self._document else None
        if due is not None:
            due_s = (due - self._clock.now()).total_seconds()
            wait_s = min(wait_s, max(_SHORTEST_WAIT_S, due_s))
        try:
            async with asyncio.timeout(wait_s):
                await changed.wait()
        except TimeoutError:
            return


class _Attempts:
    """A request, and what was learnt of it by trying."""

    def __init__(self, request: Request) -> None:
        self.request = request

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
from bucketq.queue.verbs import Verbs

T = TypeVar("T")

_FIRST_RETRY_S = 0.01
_LAST_RETRY_S = 1.0


class DirectQueue(Verbs[T]):
    """A queue whose every operation is one compare-and-set of the object."""

    _first_poll_s = 0.05

    def __init__(self, register: Register, clock: Clock, **options: Any) -> None:
        """Make a queue over a register; the options are those of ``Verbs``."""
        super().__init__(register, clock, **options)
        self._turn = asyncio.Lock()
        self._leases = LeaseWatch()

    async def __aenter__(self) -> DirectQueue[T]:
        """Load or create the queue."""
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for operations under way, then close."""
        await self._close()
        async with self._turn:
            self._document = None

    async def _submit(self, request: Request) -> Any:
        """Commit one request, trying again until it is certain or the time is over."""
        attempts = _Attempts(request)
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                return await self._try_until_certain(attempts)
        except TimeoutError as error:
            raise self._unknown(attempts.request, self._register.version) from error

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
        if isinstance(request.operation, Claim) and not state.is_served:
            monotonic_s = asyncio.get_running_loop().time()
            for expire in self._leases.stale(state, now, monotonic_s):
                apply(state, Request(expire), now)
        applied = apply(state, request, now)
        if state.has_changes and is_untidy(state, now):
            apply(state, Request(Tidy()), now)
        return applied


class _Attempts:
    """A request, and what was learnt of it by trying."""

    def __init__(self, request: Request) -> None:
        self.request = request

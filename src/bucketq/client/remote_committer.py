"""``RemoteCommitter``: finds the broker of a queue, and another one when that is gone.

Requests go to one committer at a time: a broker, the leader in this process, or the object itself.
When it is lost, everything without an answer is sent to the next one, under the same ids and with
the version at which it had certainly not been applied, so that it takes effect once. Callers notice
only a pause; at worst, after their timeout, the outcome is unknown.

A broker that does not answer is pinged first. It answers a ping from memory, even while its storage
is slow. Only if the ping fails does the client look for another broker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from msgspec.structs import replace

from bucketq.broker.takeover import Sign
from bucketq.client.client_connection import ClientConnection, DeniedError, NotOfferedError
from bucketq.client.discovery import Finder, NotYetError
from bucketq.client.older_brokers import send_instead
from bucketq.clock import Clock, fraction
from bucketq.commit.base import Committer, CommitterLostError
from bucketq.commit.outcome_errors import closed, not_durable, rejected_repeat, unanswered
from bucketq.commit.request_ids import is_unjudged
from bucketq.commit.upkeep.background import Background
from bucketq.errors import (
    BucketQError,
    ClosedError,
    NotDurableError,
    OverloadedError,
    RejectedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.operations import WAITING, Request
from bucketq.rpc.transport import CannotDialError

if TYPE_CHECKING:  # Most clients of a broker never write directly.
    from bucketq.commit.direct_committer import DirectCommitter

_log = logging.getLogger("bucketq.client")

_WATCH_S = 0.25
"""How often the broker is checked: a third of the shortest time that a call may wait for it."""
_PATIENCE_S = (0.75, 2.0)
"""How long a call may be without an answer before its broker is pinged, at least and at most.

In between it is three times what answers take here: with storage that takes a second for each
write, every client would ping its broker once a second to no purpose."""
_USUAL = 3.0
"""How many times the usual time an answer may take: fewer would ping for a slightly slow write."""
_LONG_PATIENCE_S = 5.0
"""The same if only claims wait, whose broker sends a message every three seconds.

A broker may freeze after it has committed a claim and before it answers: the claim must be sent to
the next broker before the lease is over."""
_FIRST_LOOK_S = 0.1
"""The pause after the first look without success. It grows to _LAST_LOOK_S, so that many clients do
not read the object of a queue without a broker too often."""
_LAST_LOOK_S = 1.0
_LOOK_AROUND_S = 5.0
"""How often a client that writes directly looks for a broker."""
_LOOK_AGAIN_S = 1.0
"""The same while the object names one."""


class RemoteCommitter:
    """Commits requests through the committers that a finder finds."""

    def __init__(self, finder: Finder, where: str, clock: Clock, *, timeout_s: float) -> None:
        """Use ``finder``; ``timeout_s`` limits how long opening and closing may take."""
        self._finder = finder
        self._where = where
        self._clock = clock
        self._timeout_s = timeout_s
        self._committer: Committer | None = None
        self._finding: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._background = Background()
        self._is_open = False
        self._trouble = ""
        self._look_at = 0.0

    @property
    def where(self) -> str:
        """The name of the queue in error messages."""
        return self._where

    @property
    def mode(self) -> str:
        """How it commits, for people."""
        return "looking for a broker" if self._committer is None else self._committer.mode

    @property
    def version(self) -> int:
        """The newest version of the object that it knows."""
        return 0 if self._committer is None else self._committer.version

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self._is_open

    @property
    def joins(self) -> bool:
        """Whether the committer of this moment takes several requests as one."""
        return self._committer is not None and self._committer.joins

    async def open(self) -> None:
        """Find a committer."""
        self._is_open = True
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._find()
        except TimeoutError:
            await self.close()
            reason = f" ({self._trouble})" if self._trouble else ""
            message = (
                f"no way to {self._where} was found in {self._timeout_s:g} s{reason}; "
                "check the address (bucketq serve starts a broker, bucketq doctor checks a store)"
            )
            raise UnavailableError(message) from None
        except BaseException:
            await self.close()
            raise
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """Disconnect. The broker still commits the requests that it has."""
        self._is_open = False
        await self._background.finish(self._timeout_s)
        for task in (self._watching, self._finding):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        committer, self._committer = self._committer, None
        if committer is not None:
            await _disconnect(committer)
        await self._finder.close()

    async def flush_archive(self) -> int:
        """Archive all jobs that are finished now, and return how many this call archived."""
        deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            committer = await self._find_in_time(deadline_s)
            if committer is None:
                message = f"{self._where} gave no answer in {self._timeout_s:g} s"
                raise UnavailableError(message)
            try:
                return await committer.flush_archive()
            except (CommitterLostError, SupersededError, ClosedError) as error:
                self._give_up(committer, error)

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Send a request to one committer after another, until it is answered."""
        try:
            return await self._try(request, timeout_s)
        except NotDurableError as error:
            if error.request is not None:
                raise
            raise not_durable(error, request, 0) from error  # A broker does not name a token.
        except NotOfferedError:
            if request.numbers:
                raise  # Its sender knows each of the requests that are joined in it.
            return await send_instead(lambda one: self.submit(one, timeout_s), request)

    async def _try(self, request: Request, timeout_s: float) -> Any:
        loop = asyncio.get_running_loop()
        operation = request.operation
        wait_until_s = loop.time() + (operation.wait_s if isinstance(operation, WAITING) else 0.0)
        deadline_s = wait_until_s + timeout_s
        version: int | None = None
        while True:
            committer = await self._committer_for(request, deadline_s)
            if committer is None:
                break
            if version is None:
                version = committer.version
            wait_s = max(0.0, wait_until_s - loop.time())
            request = _with_wait(request, wait_s)
            left_s = deadline_s - loop.time() - wait_s
            try:
                return await committer.submit(request, left_s)
            except OverloadedError as error:
                await self._hold_back(request, error, deadline_s)
                continue
            except (CommitterLostError, SupersededError, ClosedError) as error:
                self._give_up(committer, error)
                if isinstance(error, DeniedError):
                    continue  # It was certainly not applied.
            except RejectedError as error:
                self._reject(request, error)
            # It may have been applied, and never before the version known when it was first sent.
            request = _sent_before(request, version)
        limit = f"in {timeout_s:g} s"
        raise unanswered(self._where, limit, self._trouble, request, version or 0)

    async def _hold_back(self, request: Request, error: OverloadedError, deadline_s: float) -> None:
        """Wait for as long as the broker asks; if there is not enough time left, reject."""
        if asyncio.get_running_loop().time() + error.retry_after_s >= deadline_s:
            self._reject(request, error)
        await asyncio.sleep(error.retry_after_s * (1 + fraction(self._clock)))

    async def _committer_for(self, request: Request, deadline_s: float) -> Committer | None:
        """Return a committer for a request; None: none was found in time."""
        if self._committer is not None and self._committer.is_open:
            return self._committer
        try:
            return await self._find_in_time(deadline_s)
        except RejectedError as error:
            self._reject(request, error)

    def _reject(self, request: Request, error: RejectedError) -> NoReturn:
        """Raise a rejection. If the request was sent before, its outcome may still be unknown."""
        if is_unjudged(error, request):
            raise rejected_repeat(self._where, request, error) from error
        raise error

    async def _find_in_time(self, deadline_s: float) -> Committer | None:
        """Return an open committer; None: none was found in time. All callers share one search."""
        loop = asyncio.get_running_loop()
        while self._committer is None or not self._committer.is_open:
            if not self._is_open:
                raise closed(self._where)
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return None
            if self._finding is None or self._finding.done():
                # The result of a search that ended before this call is out of date.
                self._finding = loop.create_task(self._find())
                # If all callers have left by then, the loop would log its error.
                self._finding.add_done_callback(lambda task: task.cancelled() or task.exception())
            finding = self._finding
            await asyncio.wait([finding], timeout=left_s)
            if finding.done():
                finding.result()
        return self._committer

    async def _find(self) -> None:
        """Look for a committer until there is one."""
        pause_s = _FIRST_LOOK_S
        old, self._committer = self._committer, None
        if old is not None:
            await _disconnect(old)
        while True:
            try:
                self._committer = await self._finder.find()
            except NotYetError as error:
                self._trouble = str(error)
                await asyncio.sleep(pause_s * (0.5 + fraction(self._clock)))
                pause_s = min(1.5 * pause_s, _LAST_LOOK_S)
            else:
                self._trouble = ""
                self._look_at = asyncio.get_running_loop().time() + _LOOK_AROUND_S
                return

    def _give_up(self, committer: Committer, reason: Exception) -> None:
        """Stop using a committer; requests that wait for it are sent to the next one."""
        self._trouble = str(reason)
        if isinstance(committer, ClientConnection):
            committer.lose(str(reason))
        elif self._committer is committer and committer.is_open:
            self._committer = None
            self._background.start(_disconnect(committer))

    async def _watch(self) -> None:
        """Check the committer until closed. Calls time out only while this runs.

        A fault does not end it, and is logged once for as long as it lasts.
        """
        fault = ""
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                await self._check_broker()
            except CannotDialError as error:
                if not fault:
                    _log.warning("%s: cannot ping its broker: %s", self._where, error)
                fault = str(error)
            except Exception as error:  # noqa: BLE001 - calls must time out whatever it is
                if not fault:
                    _log.exception("%s: could not check its broker", self._where)
                fault = str(error) or type(error).__name__
            else:
                fault = ""

    async def _check_broker(self) -> None:
        """Time out old calls, and ping a broker that does not answer the others."""
        loop = asyncio.get_running_loop()
        committer, now_s = self._committer, loop.time()
        if _writes_directly(committer):
            early_s = _LOOK_AROUND_S - _LOOK_AGAIN_S if committer.sees_broker else 0.0
            if now_s >= self._look_at - early_s:
                await self._look_for_broker(committer)
        if not isinstance(committer, ClientConnection) or not committer.is_open:
            return
        committer.expire(now_s)
        if not self._is_suspect(committer, now_s):
            return
        if await self._finder.sign_of(committer) is Sign.ALIVE:
            committer.heard_at = loop.time()
        else:
            committer.lose("its broker does not answer")

    def _is_suspect(self, committer: ClientConnection, now_s: float) -> bool:
        silent_s = now_s - committer.heard_at
        if committer.waits and silent_s > _LONG_PATIENCE_S:
            return True
        since = committer.waits_since()
        least_s, most_s = _PATIENCE_S
        patience_s = min(most_s, max(least_s, _USUAL * committer.answers_in_s))
        return since is not None and min(silent_s, now_s - since) > patience_s

    async def _look_for_broker(self, direct: DirectCommitter) -> None:
        """Switch from writing directly to a broker, if there is one by now."""
        self._look_at = asyncio.get_running_loop().time() + _LOOK_AROUND_S
        try:
            committer = await self._finder.find_broker()
        except (NotYetError, BucketQError):
            return  # Writing directly still works, and the next look comes soon.
        unused: Committer = committer
        if self._committer is direct:
            self._committer, unused = committer, direct
        self._background.start(_disconnect(unused))


async def _disconnect(committer: Committer) -> None:
    """Close a committer, unless it is the leader in this process, which its broker closes."""
    if isinstance(committer, ClientConnection) or _writes_directly(committer):
        await committer.close()


def _writes_directly(committer: Committer | None) -> TypeGuard[DirectCommitter]:
    """Whether it writes the object by itself."""
    if committer is None or isinstance(committer, ClientConnection):
        return False
    from bucketq.commit.direct_committer import DirectCommitter  # noqa: PLC0415 - see above

    return isinstance(committer, DirectCommitter)


def _with_wait(request: Request, wait_s: float) -> Request:
    """Return the same claim or wait, which waits no longer than its caller does."""
    operation = request.operation
    if not isinstance(operation, WAITING) or operation.wait_s <= wait_s:
        return request
    return replace(request, operation=replace(operation, wait_s=wait_s))


def _sent_before(request: Request, version: int) -> Request:
    """Return the request for the next try: it may have been applied since ``version``."""
    if request.since is None and request.session:
        return replace(request, since=version)
    return request

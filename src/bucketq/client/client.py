"""``Client``: a queue that finds its broker, and another one when that is gone.

Requests go one way at a time (``routes``). When a way is lost, everything without an answer is
sent again the next way, under the same ids and with the version at which it had certainly not
been applied, so that it has the effect of one. Callers see none of this but a pause; what they
see at the worst, after ``timeout_s``, is that the outcome is unknown.

A broker that does not answer is not taken for dead: it is pinged, which it answers from memory
whatever its storage does. Only when that fails is the way given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar, cast

from msgspec.structs import replace

from bucketq.broker.election import Sign
from bucketq.client.discovery import Finder, NotYetError
from bucketq.client.older_brokers import release_each
from bucketq.client.routes import (
    BrokerRoute,
    DirectRoute,
    NotOfferedError,
    Route,
    RouteLostError,
    TurnedAwayError,
)
from bucketq.clock import Clock, fraction
from bucketq.commit.request_ids import RequestId, RequestIds, is_unjudged, parse_token
from bucketq.errors import (
    BucketQError,
    ClosedError,
    NotDurableError,
    OverloadedError,
    RejectedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.job import JobRecord
from bucketq.model.operations import Claim, Release, ReleaseMany, Request
from bucketq.queue.arguments import as_several, lease_of
from bucketq.queue.base import Held
from bucketq.queue.give_back import give_back
from bucketq.queue.verbs import Verbs
from bucketq.rpc.transport import CannotDialError

T = TypeVar("T")

_log = logging.getLogger("bucketq.client")

_WATCH_S = 0.25
_PATIENCE_S = (0.75, 2.0)
"""How long a call may be without an answer before its broker is pinged, at least and at most.

In between it is three times what answers take here: with storage that takes a second for each
write, every client would ping its broker once a second, for nothing."""
_USUAL = 3.0
_LONG_PATIENCE_S = 5.0
"""The same if only claims wait, whose broker sends a message every three seconds.

A broker may freeze after it has committed a claim and before it answers: the claim must be sent to
the next broker before the lease is over."""
_FIRST_LOOK_S = 0.1
_LAST_LOOK_S = 1.0
_LOOK_AROUND_S = 5.0
"""How often a client that writes directly looks for a broker."""
_LOOK_AGAIN_S = 1.0
"""The same while the object names one."""


class Client(Verbs[T]):
    """A queue that others commit."""

    def __init__(self, finder: Finder, where: str, clock: Clock, **options: Any) -> None:
        """Make a client; the options are those of ``Verbs``."""
        super().__init__(where, clock, **options)
        self._finder = finder
        self._route: Route | None = None
        self._finding: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._trouble = ""
        self._look_at = 0.0
        self._wanted: dict[str, None] = {}
        """The secrets of claims that wait and were not withdrawn."""

    async def __aenter__(self) -> Client[T]:
        """Find a way to the queue."""
        self._begin()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._find()
        except TimeoutError:
            await self._leave()
            message = (
                f"no way to {self._where} was found in {self._timeout_s:g} s{self._why()}; "
                "check the address (bucketq serve starts a broker, bucketq doctor checks a store)"
            )
            raise UnavailableError(message) from None
        except BaseException:
            await self._leave()
            raise
        self._watching = loop.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave what is under way to the broker, and hang up."""
        await asyncio.sleep(0)  # Callers that were just cancelled may have jobs to give back.
        await self._end()
        await self._leave()

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call."""
        self._guard()
        deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            route = await self._way(deadline_s)
            if route is None:
                message = f"{self._where} gave no answer in {self._timeout_s:g} s{self._why()}"
                raise UnavailableError(message)
            try:
                return await route.flush_archive()
            except TimeoutError as error:
                message = f"{self._where} did not archive everything in time; try again"
                raise UnavailableError(message) from error
            except (RouteLostError, SupersededError, ClosedError) as error:
                self._give_up(route, error)

    async def release_many(
        self, jobs: Iterable[Held[T]], *, delay_s: float = 0.0, request: str | None = None
    ) -> list[bool]:
        """Give jobs back, in one request if the broker knows that operation."""
        leases = list(map(lease_of, as_several(jobs, "release_many takes jobs that were claimed")))
        try:
            return await super().release_many(leases, delay_s=delay_s, request=request)
        except NotOfferedError:
            fresh = RequestIds(self._clock).give()
            name = fresh if request is None else parse_token(request, ReleaseMany)

            async def submit(request_id: RequestId, release: Release) -> None:
                await self._submit_as(request_id, release, self._ids)

            return await release_each(submit, name, leases, delay_s)

    def withdraw(self, claim: Claim) -> None:
        """Let a claim wait no longer; what it gets all the same is given back."""
        self._wanted.pop(claim.secret, None)
        if self._route is not None:
            self._route.withdraw(claim)

    async def _claim_once(self, operation: Claim, token: str | None) -> Any:
        """Claim without a task where that is possible, for a task is most of what it costs."""
        if operation.wait_s or not isinstance(self._route, BrokerRoute):
            return await super()._claim_once(operation, token)
        try:
            return await self._do(operation, token)
        except asyncio.CancelledError:
            route: Route | None = self._route
            late = None if route is None else route.late_answer(operation)
            if late is not None:
                self._give_back_later(asyncio.get_running_loop().create_task(_jobs_of(late)))
            raise

    async def _submit(self, request: Request) -> Any:
        """Send a request, one way after another, until it is answered or the time is over."""
        try:
            return await self._submit_wanted(request)
        except NotDurableError as error:
            if error.request is not None:
                raise
            raise self._stopped(error, request, 0) from error  # A broker does not name it.

    async def _submit_wanted(self, request: Request) -> Any:
        """Send a request; a claim that waits is known as such, so that it can be withdrawn."""
        operation = request.operation
        if not isinstance(operation, Claim) or not operation.wait_s:
            return await self._try(request, 0.0)
        self._wanted[operation.secret] = None
        try:
            return await self._try(request, operation.wait_s)
        finally:
            self._wanted.pop(operation.secret, None)

    async def _try(self, request: Request, wait_s: float) -> Any:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s + wait_s
        version: int | None = None
        while True:
            route = await self._way_for(request, deadline_s)
            if route is None:
                break
            if version is None:
                version = route.version
            if wait_s:
                request = self._with_time_left(request, deadline_s - self._timeout_s)
            try:
                return await route.submit(request, deadline_s - loop.time())
            except OverloadedError as error:
                await self._hold_back(request, error, deadline_s)
                continue
            except TimeoutError:
                break
            except (RouteLostError, SupersededError, ClosedError) as error:
                self._give_up(route, error)
                if isinstance(error, TurnedAwayError):
                    continue  # It was certainly not applied.
            except RejectedError as error:
                self._reject(request, error)
            # It may have been applied, and never before the version known when it was first sent.
            request = _sent_before(request, version)
        raise self._unknown(request, version or 0)

    async def _hold_back(self, request: Request, error: OverloadedError, deadline_s: float) -> None:
        """Wait for as long as a broker asks for; if there is no time for that, reject."""
        if asyncio.get_running_loop().time() + error.retry_after_s >= deadline_s:
            self._reject(request, error)
        await asyncio.sleep(error.retry_after_s * (1 + fraction(self._clock)))

    def _with_time_left(self, request: Request, until_s: float) -> Request:
        """The same claim; it waits no longer than its caller does."""
        claim = cast("Claim", request.operation)
        left_s = until_s - asyncio.get_running_loop().time() if claim.secret in self._wanted else 0
        wait_s = min(claim.wait_s, max(0.0, left_s))
        return replace(request, operation=replace(claim, wait_s=wait_s))

    async def _way_for(self, request: Request, deadline_s: float) -> Route | None:
        """A way for a request; None: none was found in time."""
        if self._route is not None and self._route.is_up:
            return self._route
        try:
            return await self._way(deadline_s)
        except RejectedError as error:
            self._reject(request, error)

    def _reject(self, request: Request, error: RejectedError) -> NoReturn:
        """Raise a rejection; what was sent before stays unknown, unless it was looked for."""
        if is_unjudged(error, request):
            raise self._still_unknown(request, error) from error
        raise error

    async def _way(self, deadline_s: float) -> Route | None:
        """A way that is open; None: none was found in time. All callers look together."""
        loop = asyncio.get_running_loop()
        while self._route is None or not self._route.is_up:
            self._guard()
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return None
            if self._finding is None or self._finding.done():
                # What a search found that ended before this call came is not news any more.
                self._finding = loop.create_task(self._find())
            finding = self._finding
            await asyncio.wait([finding], timeout=left_s)
            if finding.done():
                finding.result()
        return self._route

    async def _find(self) -> None:
        """Look for a way until there is one."""
        pause_s = _FIRST_LOOK_S
        old, self._route = self._route, None
        if old is not None:
            await old.close()
        while True:
            try:
                self._route = await self._finder.find(self._give_back)
            except NotYetError as error:
                self._trouble = str(error)
                await asyncio.sleep(pause_s * (0.5 + fraction(self._clock)))
                pause_s = min(1.5 * pause_s, _LAST_LOOK_S)
            else:
                self._trouble = ""
                self._look_at = asyncio.get_running_loop().time() + _LOOK_AROUND_S
                return

    def _give_up(self, route: Route, reason: Exception) -> None:
        """Take no more this way; whoever waits on it is told, and goes another."""
        self._trouble = str(reason)
        if isinstance(route, BrokerRoute):
            route.lose(str(reason))
        elif self._route is route and route.is_up:
            self._finish_later(asyncio.get_running_loop().create_task(route.close()))
            self._route = None

    async def _watch(self) -> None:
        """Look after the route for as long as the client is open, whatever goes wrong meanwhile.

        Calls time out only while this runs. A fault is logged once for as long as it lasts.
        """
        fault = ""
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                await self._look_after()
            except CannotDialError as error:
                if not fault:
                    _log.warning("%s: cannot ping its broker: %s", self._where, error)
                fault = str(error)
            except Exception as error:  # noqa: BLE001 - calls must time out whatever it is
                if not fault:
                    _log.exception("%s: could not look after its broker", self._where)
                fault = str(error) or type(error).__name__
            else:
                fault = ""

    async def _look_after(self) -> None:
        """End calls whose time is over, and ping a broker that does not answer the others."""
        loop = asyncio.get_running_loop()
        route, now_s = self._route, loop.time()
        if isinstance(route, DirectRoute):
            early_s = _LOOK_AROUND_S - _LOOK_AGAIN_S if route.sees_broker else 0.0
            if now_s >= self._look_at - early_s:
                await self._look_around(route)
        if not isinstance(route, BrokerRoute) or not route.is_up:
            return
        route.expire(now_s)
        if not self._is_suspect(route, now_s):
            return
        if await self._finder.sign_of(route) is Sign.ALIVE:
            route.heard_at = loop.time()
        else:
            route.lose("its broker does not answer")

    def _is_suspect(self, route: BrokerRoute, now_s: float) -> bool:
        silent_s = now_s - route.heard_at
        if route.waits and silent_s > _LONG_PATIENCE_S:
            return True
        since = route.waits_since()
        least_s, most_s = _PATIENCE_S
        patience_s = min(most_s, max(least_s, _USUAL * route.answers_in_s))
        return since is not None and min(silent_s, now_s - since) > patience_s

    async def _look_around(self, direct: DirectRoute) -> None:
        """See whether there is a broker by now, without holding anybody up."""
        self._look_at = asyncio.get_running_loop().time() + _LOOK_AROUND_S
        try:
            route = await self._finder.find_broker(self._give_back)
        except (NotYetError, BucketQError):
            return  # The direct way is still open, and the next look comes soon.
        if self._route is not direct:
            await route.close()
            return
        self._route = route
        self._finish_later(asyncio.get_running_loop().create_task(direct.close()))

    def _give_back(self, records: Sequence[JobRecord]) -> None:
        """Give back jobs that came for a claim that nobody waits for any more."""
        if self._closed is None:
            returning = give_back(self, records)
            self._finish_later(asyncio.get_running_loop().create_task(returning))

    async def _leave(self) -> None:
        for task in (self._watching, self._finding):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        route, self._route = self._route, None
        if route is not None:
            await route.close()
        await self._finder.close()

    def _why(self) -> str:
        return f" ({self._trouble})" if self._trouble else ""


async def _jobs_of(late: asyncio.Future[Any]) -> Any:
    """What a claim has got after its caller was cancelled; nothing, if nobody can tell."""
    try:
        return await late
    except (RouteLostError, TimeoutError, BucketQError):
        return ()


def _sent_before(request: Request, version: int) -> Request:
    """The same request, for the next try: it may have been applied since ``version``."""
    if request.since is None and request.session:
        return replace(request, since=version)
    return request

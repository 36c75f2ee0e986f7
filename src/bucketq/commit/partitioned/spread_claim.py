"""``SpreadClaims``: the claims of a queue with partitions.

Partitions are asked in turn, each under the id of the claim and for as many jobs as it may get, and
the first that has jobs ends that. If none has any, the claim waits in all partitions at once. It is
withdrawn from every other partition that may still answer it, so that no job is claimed that it
does not return.

If there is room for more jobs, further partitions are asked for the rest, each under a new id. The
claim itself is repeated only if it has no answer, and then for the same jobs: these fillings are
never repeated, but withdrawn if their outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from bucketq.clock import Clock, new_token
from bucketq.commit.base import Committer
from bucketq.commit.partitioned.claim_turns import ClaimTurns
from bucketq.commit.request_ids import RequestIds
from bucketq.commit.upkeep.background import Background
from bucketq.errors import UnavailableError
from bucketq.model.operations import Claim, Request, Withdraw
from bucketq.model.partitions import with_partition
from bucketq.model.records import JobRecord

_PATIENCE_S = 1.0
"""How long a partition is waited for before the next one is asked too: its broker may have failed,
and the jobs of the others must not wait for that."""
_LATE_S = 5.0
"""How long a claim that has waited in vain waits for a partition that still does not answer: a
failover takes less. The other partitions have jobs for the next claim."""


class SpreadClaims:
    """Makes the claims of one queue."""

    def __init__(self, parts: Sequence[Committer], count: int, clock: Clock) -> None:
        """Claim from ``count`` partitions, once they are there."""
        self.parts = parts
        self.turns = ClaimTurns(count)
        self.ids = RequestIds(clock)
        """For what fills claims up."""
        self.clock = clock
        self._background = Background()

    async def claim(self, request: Request, timeout_s: float) -> tuple[JobRecord, ...]:
        """Claim jobs; none: there were none for ``wait_s``."""
        return await _SpreadClaim(self, request, timeout_s).run()

    def withdraw(
        self, index: int, request: Request, timeout_s: float, task: asyncio.Task[Any] | None = None
    ) -> None:
        """Undo a claim in one partition; if that fails, the leases of its jobs run out."""
        self._background.start(self._withdraw(index, request, timeout_s, task))

    async def _withdraw(
        self, index: int, request: Request, timeout_s: float, task: asyncio.Task[Any] | None
    ) -> None:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        secret = cast("Claim", request.operation).secret
        undo = Withdraw(session=request.session, number=request.number, secret=secret)
        await self.parts[index].submit(Request(undo), timeout_s)

    async def finish(self, timeout_s: float) -> None:
        """Wait until everything is undone."""
        await self._background.finish(timeout_s)


class _SpreadClaim:
    """A claim that is under way."""

    def __init__(self, claims: SpreadClaims, request: Request, timeout_s: float) -> None:
        self._claims = claims
        self._parts = claims.parts
        self._request = request
        self._claim = cast("Claim", request.operation)
        self._timeout_s = timeout_s
        self._jobs: list[JobRecord] = []
        self._asking: dict[int, asyncio.Task[Any]] = {}
        """What is asked under the id of the claim, by partition."""
        self._givers: set[int] = set()
        """The partitions whose answers were accepted."""
        self._fillings: list[tuple[int, Request]] = []
        self._trouble: UnavailableError | None = None
        self._has_answer = False
        self._until_s = asyncio.get_running_loop().time() + self._claim.wait_s

    async def run(self) -> tuple[JobRecord, ...]:
        """Return the jobs."""
        order = self._claims.turns.order()
        try:
            await self._ask_in_turn(order)
            has_found = bool(self._jobs)
            await self._wait(order)
            self._withdraw_others()
            if has_found:
                await self._fill(order)
        except asyncio.CancelledError:
            # The caller withdraws the claim itself, from all partitions. It may be about to close
            # the queue, and must know at once.
            self._undo_fillings()
            raise
        except BaseException:
            for index in range(len(self._parts)):
                self._withdraw(index, self._request, self._asking.pop(index, None))
            self._undo_fillings()
            raise
        finally:
            for task in self._asking.values():
                task.cancel()
                task.add_done_callback(_ignore_outcome)
        if not self._jobs and self._trouble is not None:
            raise self._trouble
        return tuple(self._jobs)

    async def _ask_in_turn(self, order: Sequence[int]) -> None:
        for index in order:
            self._ask(index, 0.0)
            await self._collect(_PATIENCE_S, until_s=0.0)
            if self._jobs:
                break

    async def _wait(self, order: Sequence[int]) -> None:
        """Wait in all partitions, and for those that have not answered."""
        loop = asyncio.get_running_loop()
        wait_s = self._until_s - loop.time()
        if wait_s > 0 and not self._jobs:
            for index in order:
                if index not in self._asking:
                    self._ask(index, wait_s)
        while self._asking and not self._jobs:
            left_s: float | None = None
            if self._claim.wait_s and self._has_answer:
                left_s = self._until_s + _LATE_S - loop.time()
                if left_s <= 0:
                    break
            await self._collect(left_s, until_s=self._until_s)

    def _ask(self, index: int, wait_s: float) -> None:
        request = replace(self._request, operation=replace(self._claim, wait_s=wait_s))
        asking = self._parts[index].submit(request, self._timeout_s)
        self._asking[index] = asyncio.get_running_loop().create_task(asking)

    async def _collect(self, patience_s: float | None, *, until_s: float) -> None:
        """Wait for an answer, and accept those that are there.

        A partition that had nothing is asked again for the time that is left until ``until_s``.
        """
        tasks = self._asking.values()
        await asyncio.wait(tasks, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        for index in [each for each, task in self._asking.items() if task.done()]:
            try:
                jobs = self._asking.pop(index).result()
            except UnavailableError as error:
                self._trouble = error
                continue
            self._has_answer = True
            self._claims.turns.note(index, found=bool(jobs))
            if len(self._jobs) + len(jobs) <= self._claim.limit:
                self._accept(index, jobs)
            else:
                self._withdraw(index, self._request)
            left_s = until_s - asyncio.get_running_loop().time()
            if not jobs and left_s > 0 and not self._jobs:
                self._ask(index, left_s)

    def _accept(self, index: int, jobs: Sequence[JobRecord]) -> None:
        if jobs:
            self._givers.add(index)
        for job in jobs:
            lease = None if job.lease is None else with_partition(job.lease, index)
            self._jobs.append(replace(job, lease=lease))

    def _withdraw_others(self) -> None:
        """Undo the claim in partitions that may still answer it, or have at an earlier try."""
        if not self._jobs and self._trouble is not None:
            return  # It can be repeated.
        doomed = dict.fromkeys(self._asking)
        if self._request.since is not None or self._trouble is not None:
            doomed = dict.fromkeys(range(len(self._parts)))
        for index in doomed:
            if index not in self._givers:
                task = self._asking.pop(index, None)
                self._withdraw(index, self._request, task)

    async def _fill(self, order: Sequence[int]) -> None:
        """Ask other partitions for as many jobs as there is room for."""
        tried = order.index(next(iter(self._givers)))
        for index in order[tried + 1 :]:
            limit = self._claim.limit - len(self._jobs)
            if limit <= 0 or index in self._givers:
                continue
            if self._claim.wait_s and self._claims.turns.is_empty(index):
                continue  # A caller that waits claims again soon.
            secret = new_token(self._claims.clock)
            claim = replace(self._claim, wait_s=0.0, limit=limit, secret=secret)
            request_id = self._claims.ids.give()
            request = request_id.request(claim)
            self._fillings.append((index, request))
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._parts[index].submit(request, self._timeout_s))
            try:
                done, _ = await asyncio.wait([task], timeout=_PATIENCE_S)
            except asyncio.CancelledError:
                task.cancel()
                task.add_done_callback(_ignore_outcome)
                self._claims.ids.abandon(request_id)
                raise
            if not done or task.exception() is not None:
                self._fillings.pop()
                self._claims.ids.abandon(request_id)
                self._withdraw(index, request, task)
                continue
            self._claims.ids.settle(request_id)
            jobs = task.result()
            self._claims.turns.note(index, found=bool(jobs))
            self._accept(index, jobs)

    def _undo_fillings(self) -> None:
        for index, request in self._fillings:
            self._withdraw(index, request)

    def _withdraw(
        self, index: int, request: Request, task: asyncio.Task[Any] | None = None
    ) -> None:
        self._claims.withdraw(index, request, self._timeout_s, task)


def _ignore_outcome(task: asyncio.Task[Any]) -> None:
    """Keep the loop from logging an error that is not of interest any more."""
    if not task.cancelled():
        task.exception()

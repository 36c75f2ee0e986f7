"""``HistoryKeeper``: keeps the history of a queue outside of its object, and bounded.

The row of every version is part of the commit that makes the version. Beside the commits this moves
rows to history objects, makes copies of versions, and deletes what has outlived its time:

* **Rows** are written to an object only once their versions have landed; then a commit removes them
  from the queue object. A row of a version that was lost must never be in an object: readers list
  them and trust every row.
* **A copy** of a version that has landed is written first; then a commit names it, provided that
  all that the copy names is still named.

It never fails or delays a commit. If objects cannot be written, the rows stay in the queue object;
if they are too many for too long, the oldest are given up, and the history begins later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from bucketq.clock import Clock
from bucketq.codec.decode import decode
from bucketq.codec.history_file import encode_changes, encode_copy
from bucketq.commit.objects.history_folder import ListedHistory
from bucketq.commit.objects.register import Register
from bucketq.commit.upkeep.background import Background, BackgroundLoop, before_commit
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import BucketQError
from bucketq.model.effects.timekeeping import agreed
from bucketq.model.history import (
    FEATURE,
    ChangeRecord,
    CopyRecord,
    DropChanges,
    ForgetHistory,
    NameCopy,
)
from bucketq.model.operations import Request
from bucketq.model.state import State

_log = logging.getLogger("bucketq")

_SMALL_SHARE = 4
_MANY_ROWS = 64
"""Rows are moved once they take more than ``spill_bytes`` or, if they are many, this share of it:
every commit writes them, and a put for every few commits costs more than that. With one caller on
a file a history took 13 % of the cycles at an eighth, 11 % at a quarter and 12 % at a half; with 64
callers, whose rows are few and large, 16 % so, 21 % at a half and 26 % at a quarter."""
_CROWD = 4
"""If they take so many times ``spill_bytes`` for too long, they are given up."""
_LONGEST_PAUSE_S = 60.0
"""The longest pause after failures: a store that refuses the history is asked once a minute."""
_LAST_COPY_S = 2.0
"""How long closing a queue may take for a copy: one put and one commit."""
_SWEEP_SHARE = 8
"""After this share of ``history_bytes`` was written, the history may take too many bytes."""


class HistoryKeeper:
    """Keeps the history of one queue, in the background."""

    def __init__(
        self, submit: Callable[[Request], Awaitable[Any]], register: Register, clock: Clock
    ) -> None:
        """Commit with ``submit``."""
        self._submit = submit
        self._register = register
        self._clock = clock
        fault = TransientFault(
            clock, _log, f"the history of {register.where} cannot be written", _LONGEST_PAUSE_S
        )
        self._fault = fault
        self._loop = BackgroundLoop(clock, fault)
        self._sweep_at = 0.0
        self._incarnation = ""
        self._rows: tuple[ChangeRecord, ...] = ()
        """Rows that have landed, and are to be written."""
        self._body = b""
        """The queue object at a version that has landed, of which a copy is to be made."""
        self._copy_after_s = 0.0
        """When to look again whether a copy is due: that of one version may not have been named,
        because the queue moved on."""
        self._crowded_since: float | None = None
        self._giving_up = Background()
        self._puts = self._put_bytes = 0
        """What was written since the last sweep."""
        self._swept_since: int | None = None
        """The beginning of the history when it was last swept; None: it was not looked at yet."""

    def start(self, current: Callable[[], State | None]) -> None:
        """Begin; ``current`` returns the state in memory."""
        policy = self._register.history.policy
        self._sweep_at = asyncio.get_running_loop().time() + policy.first_sweep_s
        self._loop.start(partial(self._pass, current), policy.pass_s)

    async def stop(self) -> None:
        """Make a copy that is due, if the storage is quick, and stop.

        Without that, a queue that only short-lived processes use would hardly ever get one.
        """
        await self._loop.stop()
        with suppress(BucketQError, TimeoutError):
            async with asyncio.timeout(_LAST_COPY_S):
                await self._make_copy()
        await self._giving_up.finish(0)

    def notice(self, state: State, body: bytes) -> None:
        """Look at a version that has just landed, and nothing was prepared since; it is cheap.

        All rows of the state belong to versions that have landed.
        """
        history = state.history
        if not history.since:
            return
        self._incarnation = state.incarnation
        if not self._rows and _has_many_rows(state):
            self._rows = tuple(history.changes)
            self._loop.wake()
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._copy_after_s:
            self._copy_after_s = now_s + self._register.history.policy.pass_s
            if self._is_copy_due(state):
                self._body = body
                self._loop.wake()
        if history.size_bytes <= _CROWD * state.settings.spill_bytes:
            self._crowded_since = None
            return
        if self._crowded_since is None:
            self._crowded_since = now_s
        elif now_s - self._crowded_since >= self._register.history.policy.patience_s:
            self._crowded_since = None
            self._giving_up.start(self._give_up(state.version))

    async def step_before(self, state: State) -> list[DropChanges | NameCopy | ForgetHistory]:
        """Do one step for a writer that commits by itself, if the object has far too many rows.

        Nothing was applied to the state since it was read. The writer applies what is returned, in
        its own commit.
        """
        history, limit = state.history, state.settings.spill_bytes
        if not history.since or history.size_bytes <= limit:
            return []
        steps: list[DropChanges | NameCopy | ForgetHistory] = []
        last = state.version
        folder = self._register.history.folder(state.incarnation)
        try:
            await before_commit(folder.put_changes(*encode_changes(tuple(history.changes))))
            steps.append(DropChanges(last=last))
            if self._is_copy_due(state):
                steps.append(await before_commit(self._put_copy(state)))
        except BucketQError as error:
            self._fault.strike(error)
            if not steps and history.size_bytes > _CROWD * limit:
                self._log_loss(last)
                steps.append(DropChanges(last=last, is_lost=True))
        forgotten = self._outlived(state)
        return [*steps, ForgetHistory(before=forgotten)] if forgotten else steps

    async def _pass(self, current: Callable[[], State | None]) -> float:
        """Do what is due; return the pause until the next pass."""
        policy = self._register.history.policy
        try:
            await self._move_rows()
            await self._make_copy()
        except Exception:
            # The next version that lands brings what is to be written then.
            self._rows, self._body = (), b""
            raise
        state = current()
        if state is None or FEATURE not in state.requires:
            return policy.pass_s
        if forgotten := self._outlived(state):
            await self._submit(Request(ForgetHistory(before=forgotten)))
        if self._swept_since is None:
            self._swept_since = state.history.since
        has_risen = state.history.since != self._swept_since
        now_s = asyncio.get_running_loop().time()
        has_grown = self._put_bytes * _SWEEP_SHARE >= state.settings.history_bytes
        if has_risen or has_grown or now_s >= self._sweep_at or self._puts >= policy.neighbours:
            self._sweep_at = now_s + policy.sweep_s
            await self._sweep(has_risen=has_risen)
        return policy.pass_s

    async def _move_rows(self) -> None:
        """Write rows that have landed to an object, and remove them from the queue object."""
        rows = self._rows
        if not rows:
            return
        name, body = encode_changes(rows)
        await self._register.history.folder(self._incarnation).put_changes(name, body)
        self._puts, self._put_bytes = self._puts + 1, self._put_bytes + len(body)
        await self._submit(Request(DropChanges(last=rows[-1].seq)))
        self._rows = ()

    async def _make_copy(self) -> None:
        """Make a copy of a version that has landed, and name it."""
        if body := self._body:
            state = decode(body, self._register.where).state
            await self._submit(Request(await self._put_copy(state)))
            self._body = b""

    async def _put_copy(self, state: State) -> NameCopy:
        record, body, names = encode_copy(state, written_at(state))
        await self._register.history.folder(state.incarnation).put_copy(record, body)
        return NameCopy(copy=record, names=tuple(sorted(names)))

    def _is_copy_due(self, state: State) -> bool:
        policy, settings = self._register.history.policy, state.settings
        newest = _newest(state)
        if newest is None:
            return True
        apart_s = max(policy.copy_s, settings.history_retention_s / policy.most_copies)
        return (self._clock.now() - newest.at).total_seconds() >= apart_s

    def _outlived(self, state: State) -> int:
        """Return the version before which the history has outlived its time; 0: there is none.

        The newest copy that is old enough is kept, so that all later versions can be rebuilt.
        """
        retention = timedelta(seconds=state.settings.history_retention_s)
        horizon = agreed(state, self._clock.now()) - retention
        old = [copy.seq for copy in state.history.copies if copy.at <= horizon]
        return old[-1] + 1 if old and old[-1] + 1 > state.history.since else 0

    async def _sweep(self, *, has_risen: bool) -> None:
        """Merge small objects, and delete what the queue has forgotten."""
        puts, put_bytes = self._puts, self._put_bytes
        state = (await self._register.beside().load()).state
        folder = self._register.history.folder(state.incarnation)
        while await folder.merge(self._register.history.policy.neighbours):
            pass
        self._puts, self._put_bytes = self._puts - puts, self._put_bytes - put_bytes
        excess = beyond(state, await folder.list())
        if excess:
            await self._submit(Request(ForgetHistory(before=excess)))
            return  # What was forgotten is deleted by the next pass.
        await folder.sweep(state)
        if has_risen:
            self._swept_since = state.history.since

    async def _give_up(self, last: int) -> None:
        self._log_loss(last)
        with suppress(BucketQError):
            await self._submit(Request(DropChanges(last=last, is_lost=True)))

    def _log_loss(self, last: int) -> None:
        text = "the history of %s begins after version %d: earlier changes could not be written"
        _log.warning(text, self._register.where, last)


def _has_many_rows(state: State) -> bool:
    """Whether the rows in the queue object should move."""
    history, limit = state.history, state.settings.spill_bytes
    is_many = len(history.changes) >= _MANY_ROWS
    return history.size_bytes > (limit // _SMALL_SHARE if is_many else limit)


def written_at(state: State) -> datetime:
    """Return when a version was written; the same in every process that has read it."""
    at = max((row.at for row in state.history.changes), default=None)
    if at is not None:
        return at
    return state.created_at if state.time is None else state.time.at


def beyond(state: State, listed: ListedHistory) -> int:
    """Return the version before which to forget, so that the rest is not too large; 0: none."""
    left = listed.size_bytes
    if not state.history.since or left <= state.settings.history_bytes:
        return 0
    since = state.history.since
    for name, size_bytes in listed.changes:
        left -= size_bytes
        since = max(since, name.last + 1)
        if left <= state.settings.history_bytes:
            break
    # From a copy on, later versions can be rebuilt.
    later = [copy.seq + 1 for copy in state.history.copies if copy.seq + 1 >= since]
    found = later[0] if later else since
    return found if found > state.history.since else 0


def _newest(state: State) -> CopyRecord | None:
    copies = [*state.history.copies]
    return copies[-1] if copies else None

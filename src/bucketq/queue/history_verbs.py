"""``HistoryVerbs``: the part of ``Queue`` that reads the past.

An earlier version is put together here, in the process that asks: from the newest copy before it,
part by part, and the changes since. So a broker only passes on what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, cast

import msgspec

from bucketq.errors import HistoryGapError, InvalidRequestError
from bucketq.model import check
from bucketq.model import operations as ops
from bucketq.model.history import (
    ChangePage,
    ChangeRecord,
    CopyPart,
    ForgetHistory,
    ReadChanges,
    ReadCopy,
)
from bucketq.queue.change import Change, HistoryRange, change_of
from bucketq.queue.sender import Sender

if TYPE_CHECKING:  # Most processes never read a past version.
    from bucketq.codec.past_state import PastState

_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
"""How often new versions are looked for: often at first, then as often as a conditional GET is
cheap on every store."""
_encode = msgspec.json.Encoder().encode


class HistoryVerbs:
    """Changes and earlier versions of a queue whose setting ``history_retention_s`` is not 0."""

    _sender: Sender

    async def changes(
        self, since: int | None = None, *, incarnation: str | None = None, follow: bool = True
    ) -> AsyncIterator[Change]:
        """Yield what each version after ``since`` changed, every version once and in order.

        Without ``since`` it begins with the first version that the history has. To resume, pass the
        version and the incarnation of the last change that was processed. It waits for new versions
        unless ``follow`` is False.

        Raises:
            RejectedError: The history is off.
            HistoryGapError: The history does not reach back that far, or the queue was replaced:
                begin with a ``snapshot``.
        """
        self._sender.check_open()
        if since is not None:
            check.whole_number(since, "since", 0)
        after, pause_s = since, _FIRST_PAUSE_S
        while True:
            page = await self._read_changes(after, incarnation)
            incarnation = page.incarnation
            after = page.since - 1 if after is None else after
            for row in page.changes:
                yield change_of(row, page.incarnation)
                after = row.seq
            if page.changes:
                pause_s = _FIRST_PAUSE_S
            elif not follow:
                return
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    async def snapshot(
        self, *, version: int | None = None, at: datetime | None = None
    ) -> ops.Snapshot:
        """Read everything at one version: all jobs in the order of their pushes.

        Without arguments it is the newest version. With ``version`` or ``at`` it is an earlier one,
        from the history: jobs have no leases then. The version at a time is the last one that was
        written, like all before it, not after that time.

        All jobs are in memory at once. A broker sends at most 128 MiB of the newest version: of a
        larger queue read pages (``jobs``), or the storage.

        Raises:
            PayloadTooLargeError: A broker serves the queue, and it is too large for that.
            RejectedError: The history is off.
            HistoryGapError: The history does not reach back that far.
        """
        if version is None and at is None:
            return cast("ops.Snapshot", await self._sender.send(ops.ReadSnapshot()))
        past = await self._past_state(version, at)
        return ops.Snapshot(
            version=past.version,
            incarnation=past.incarnation,
            at=past.at or self._sender.clock.now(),
            settings=past.settings,
            paused=past.paused,
            paused_kinds=past.paused_kinds,
            jobs=tuple(past.jobs()),
        )

    async def forget_history(self, before: int | datetime) -> int:
        """Delete what the history has of versions before this one, or of times before this.

        Returns the first version that is left; if all of them are later, nothing is deleted. What
        was forgotten is deleted from the storage by the processes that keep the queue open, or by
        ``bucketq gc``.
        """
        self._sender.check_open()
        if isinstance(before, datetime):
            try:
                before = await self.version_at(before) + 1
            except HistoryGapError:
                return (await self.history_range()).first
        check.whole_number(before, "before", 0)
        return cast("int", await self._sender.send(ForgetHistory(before=before, is_asked=True)))

    async def history_range(self) -> HistoryRange:
        """Read which versions the history has.

        Raises:
            RejectedError: The history is off.
        """
        self._sender.check_open()
        page: ChangePage = await self._sender.send(ReadChanges(after=_FAR))
        return HistoryRange(page.incarnation, page.since, page.version)

    async def version_at(self, at: datetime) -> int:
        """Return the last version that was written, like all before it, not after a time.

        Raises:
            RejectedError: The history is off.
            HistoryGapError: The history does not reach back that far.
        """
        self._sender.check_open()
        _check_moment(None, at)
        part: CopyPart = await self._sender.send(ReadCopy(version=0, at=at.isoformat()))
        version = part.version
        async for row in self._rows(version, part.incarnation):
            if row.at > at:
                break
            version = row.seq
        return version

    async def _past_state(self, version: int | None, at: datetime | None) -> PastState:
        """Put an earlier version together."""
        from bucketq.codec.past_state import PastState  # noqa: PLC0415 - see above

        self._sender.check_open()
        _check_moment(version, at)
        until = "" if at is None else at.isoformat()
        operation = ReadCopy(version=version or 0, at=until)
        part: CopyPart = await self._sender.send(operation)
        past = PastState(part.version, part.at)
        past.incarnation = part.incarnation
        past.set_head(bytes(part.head))
        past.add(map(_encode, part.jobs))
        for number in range(1, part.parts):
            # By its version, because a newer copy may be there by now.
            rest = ReadCopy(version=part.version, part=number)
            past.add(map(_encode, (await self._sender.send(rest)).jobs))
        async for row in self._rows(part.version, part.incarnation):
            if (version is not None and row.seq > version) or (at is not None and row.at > at):
                break
            past.step(row)
        return past

    async def _rows(self, after: int, incarnation: str) -> AsyncIterator[ChangeRecord]:
        while (page := await self._read_changes(after, incarnation)).changes:
            for row in page.changes:
                yield row
                after = row.seq

    async def _read_changes(self, after: int | None, incarnation: str | None) -> ChangePage:
        if after is None:
            after = (await self.history_range()).first - 1
        page: ChangePage = await self._sender.send(ReadChanges(after=after))
        if incarnation is not None and page.incarnation != incarnation:
            raise HistoryGapError(
                f"the queue was replaced: its incarnation is {page.incarnation}, and not "
                f"{incarnation}; begin with a snapshot"
            )
        return page


_FAR = 2**62
"""Behind every version: an answer without changes, which says where the history begins."""


def _check_moment(version: int | None, at: datetime | None) -> None:
    if version is not None:
        check.whole_number(version, "version", 1)
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidRequestError("at must be a datetime with a time zone")
    if version is not None and at is not None:
        raise InvalidRequestError("give a version or a time, not both")

"""``LimitVerbs``: the part of ``Queue`` for limits on kinds and groups of jobs."""

from __future__ import annotations

from typing import cast

from bucketq.errors import InvalidRequestError
from bucketq.model.limits import (
    LimitInfo,
    ReadLimits,
    RemoveLimit,
    SetLimit,
    group_target,
    kind_target,
)
from bucketq.model.requests.stateless_checks import check_limit, check_target
from bucketq.model.schedules import SetAnswer
from bucketq.queue.arguments import Duration, seconds
from bucketq.queue.sender import Sender


class LimitVerbs:
    """Limits."""

    _sender: Sender

    async def limit(
        self,
        *,
        kind: str | None = None,
        group: str | None = None,
        running: int | None = None,
        rate: int | None = None,
        period_s: Duration | None = None,
        request: str | None = None,
    ) -> SetAnswer:
        """Limit the jobs of a kind or of a group; ``group="*"`` limits every group by itself.

        At most ``running`` of them run at once, and at most ``rate`` start in ``period_s``. Both
        may be given. It replaces the limit that was there; a group with a limit of its own does not
        obey that of every group. After a time without starts, ``rate`` jobs may start at once.
        Retries count as starts. Returns ``created``, ``changed`` or ``unchanged``.
        """
        operation = SetLimit(
            target=_target(kind, group),
            running=running,
            rate=rate,
            period_s=None if period_s is None else seconds(period_s, "period_s"),
        )
        check_limit(operation)
        return cast("SetAnswer", await self._sender.send(operation, request))

    async def unlimit(
        self, *, kind: str | None = None, group: str | None = None, request: str | None = None
    ) -> bool:
        """Remove the limit of a kind or a group; return whether there was one."""
        operation = RemoveLimit(target=_target(kind, group))
        return cast("bool", await self._sender.send(operation, request))

    async def limits(self, *, kind: str | None = None, group: str | None = None) -> list[LimitInfo]:
        """List the limits, in the order in which they were made, and how near each is.

        With a kind or a group, only the limits that hold for such jobs.
        """
        return list(await self._sender.send(ReadLimits(kind=kind or "", group=group or "")))


def _target(kind: str | None, group: str | None) -> str:
    if (kind is None) is (group is None):
        raise InvalidRequestError("a limit holds for a kind or for a group: give one of them")
    target = kind_target(kind) if kind is not None else group_target(group or "")
    check_target(target)
    return target

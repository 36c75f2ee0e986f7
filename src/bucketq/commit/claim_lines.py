"""``ClaimLines``: claims of the same kinds that wait for the same rows of segments.

The first of them reads the rows, and the others wait behind it. Without that, each would look for
its jobs again whenever rows come, and put them back because they are not enough for all: a thousand
workers that claim a hundred jobs each would cost a broker a thousand times as much as one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.operations import Claim

Kinds = tuple[str, ...]


class _ClaimLine(NamedTuple):
    first: PendingRequest
    others: deque[PendingRequest]


class ClaimLines:
    """One line for the claims of each choice of kinds. Other requests are in none."""

    def __init__(self) -> None:
        self._lines: dict[Kinds, _ClaimLine] = {}

    def begin(self, pending: PendingRequest) -> None:
        """Begin a line with a claim that reads rows, unless it is in front of one already."""
        if (kinds := _kinds_of(pending)) is not None and kinds not in self._lines:
            self._lines[kinds] = _ClaimLine(pending, deque())

    def join(self, pending: PendingRequest) -> bool:
        """Put a claim at the end of its line; return False if there is none, or it is in front."""
        kinds = _kinds_of(pending)
        line = None if kinds is None else self._lines.get(kinds)
        if line is None or line.first is pending:
            return False
        line.others.append(pending)
        return True

    def pass_on(self, pending: PendingRequest, apply: Callable[[PendingRequest], None]) -> None:
        """End the line that a claim is in front of: apply those behind it, in order.

        If one of them has to read more rows, it is in front of the others from then on.
        """
        kinds = _kinds_of(pending)
        line = None if kinds is None else self._lines.get(kinds)
        if kinds is None or line is None or line.first is not pending:
            return
        del self._lines[kinds]
        others = line.others
        while others:
            apply(others.popleft())
            if (new := self._lines.get(kinds)) is not None:
                new.others.extend(others)
                return

    def clear(self) -> None:
        """Forget all lines."""
        self._lines.clear()


def _kinds_of(pending: PendingRequest) -> Kinds | None:
    operation = pending.request.operation
    return operation.kinds if type(operation) is Claim else None

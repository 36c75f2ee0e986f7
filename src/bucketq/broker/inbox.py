"""What has come and is not let in yet: bounded, and the important first.

Under pressure a broker must go on finishing work before it takes more: completions and heartbeats
are let in first, pushes last, and pushes are also the first to be refused. Whatever nobody waits
for any more is dropped before it is applied. What is refused has changed nothing, and its client
is told when to try again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from bucketq.errors import OverloadedError
from bucketq.model import numbered_batches
from bucketq.model import operations as ops

MAX_CALLS = 20_000
MAX_BYTES = 256 * 1024 * 1024
_ROOMS = (2.0, 1.0, 0.75)
"""How much of the bounds those may fill who are let in first, then, and last."""
_FIRST, _MIDDLE, _LAST = 0, 1, 2
_RANKS: dict[type, int] = {
    ops.Heartbeat: _FIRST,
    ops.Complete: _FIRST,
    ops.CompleteMany: _FIRST,
    ops.Fail: _FIRST,
    ops.Release: _FIRST,
    ops.ReleaseMany: _FIRST,
    numbered_batches.AckBatch: _FIRST,
    numbered_batches.ReleaseBatch: _FIRST,
    ops.Push: _LAST,
    numbered_batches.Publish: _LAST,
}
"""What is not named here is in the middle: a withdrawal must not overtake its claim."""
_PORTION = 256
_SHORTEST_RETRY_S = 0.05


class InboxItem(Protocol):
    """A call that has come."""

    @property
    def request(self) -> ops.Request:
        """What is asked for."""
        ...

    @property
    def size_bytes(self) -> int:
        """About how much it carries."""
        ...

    @property
    def expires_at(self) -> float:
        """When nobody waits for it any more, by the loop's time."""
        ...


C = TypeVar("C", bound=InboxItem)


class Inbox(Generic[C]):
    """The calls of all clients of one queue that are not let in yet."""

    def __init__(
        self,
        waiting: Callable[[], tuple[int, int]],
        pace_s: Callable[[], float],
        drop: Callable[[C], None],
    ) -> None:
        """Count what has been let in and has no answer (``waiting``) against the same bounds.

        ``pace_s`` tells how long a write takes these days, for the hint when to come back. What
        has expired goes to ``drop``.
        """
        self._waiting = waiting
        self._pace_s = pace_s
        self._drop = drop
        self._lines: tuple[deque[C], ...] = (deque(), deque(), deque())
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        """How many calls wait to be let in."""
        return self._count

    def put(self, call: C) -> None:
        """Take a call, or raise ``OverloadedError``."""
        rank = _RANKS.get(type(call.request.operation), _MIDDLE)
        room = _ROOMS[rank]
        calls, size_bytes = self._waiting()
        calls += self._count
        size_bytes += self._bytes
        # A single call that is larger than everything is for the queue's own limits to refuse.
        too_large = size_bytes and size_bytes + call.size_bytes > room * MAX_BYTES
        if calls >= room * MAX_CALLS or too_large:
            message = (
                f"the broker is overloaded: {calls} calls ({size_bytes:,} bytes) wait to be "
                "written; try again in a moment"
            )
            raise OverloadedError(message, retry_after_s=max(_SHORTEST_RETRY_S, self._pace_s()))
        self._lines[rank].append(call)
        self._count += 1
        self._bytes += call.size_bytes

    def take(self, now_s: float) -> list[C]:
        """Take out the next portion, the important first; what has expired is dropped."""
        portion: list[C] = []
        for line in self._lines:
            while line and len(portion) < _PORTION:
                call = line.popleft()
                self._count -= 1
                self._bytes -= call.size_bytes
                if call.expires_at > now_s:
                    portion.append(call)
                else:
                    self._drop(call)
        return portion

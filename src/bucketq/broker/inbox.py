"""A bounded queue of calls that were not applied yet, ordered by importance.

Under load a broker must finish work before it takes more: completions and heartbeats are applied
first, pushes last, and pushes are also the first to be rejected. A call whose client has stopped
waiting is dropped. A call that is rejected has changed nothing, and its error says when to retry.
"""

from __future__ import annotations

from collections import deque

from bucketq.commit.pending_requests import MAX_PENDING, MAX_PENDING_BYTES, PendingRequest
from bucketq.errors import OverloadedError, UnavailableError
from bucketq.model import numbered_batches, worker_records
from bucketq.model import operations as ops

_ROOMS = (2.0, 1.0, 0.75)
"""How much of the bounds each rank may fill: the first, the middle, the last. Work can always be
finished, and pushes are rejected before claims are."""
_FIRST, _MIDDLE, _LAST = 0, 1, 2
_RANKS: dict[type, int] = {
    ops.Heartbeat: _FIRST,
    worker_records.Announce: _FIRST,
    ops.Complete: _FIRST,
    ops.CompleteMany: _FIRST,
    ops.Fail: _FIRST,
    ops.Release: _FIRST,
    ops.ReleaseMany: _FIRST,
    numbered_batches.AckBatch: _FIRST,
    numbered_batches.SettleBatch: _FIRST,
    numbered_batches.ReleaseBatch: _FIRST,
    ops.Push: _LAST,
    numbered_batches.Publish: _LAST,
}
"""Others have the middle rank: a withdrawal must not overtake its claim."""
_PORTION = 256
"""How many calls are applied before other tasks run."""
_SHORTEST_RETRY_S = 0.05
"""A client does not retry sooner, even if writes are faster."""


class Inbox:
    """The calls of all clients of one queue that were not applied yet."""

    def __init__(self) -> None:
        self._lines: tuple[deque[PendingRequest], ...] = (deque(), deque(), deque())
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def put(self, call: PendingRequest, waiting: tuple[int, int], pace_s: float) -> None:
        """Add a call, or raise ``OverloadedError``.

        Args:
            call: The call.
            waiting: The number and bytes of calls that were applied and have no answer; they count
                against the same bounds.
            pace_s: How long a write takes now, which is the hint for retries.
        """
        rank = _rank_of(call.request.operation)
        room = _ROOMS[rank]
        calls, size_bytes = waiting[0] + self._count, waiting[1] + self._bytes
        # A single call that is larger than the bound is rejected by the queue's own limits.
        too_large = size_bytes and size_bytes + call.size_bytes > room * MAX_PENDING_BYTES
        if calls >= room * MAX_PENDING or too_large:
            message = (
                f"the broker is overloaded: {calls} calls ({size_bytes:,} bytes) wait to be "
                "written; try again in a moment"
            )
            raise OverloadedError(message, retry_after_s=max(_SHORTEST_RETRY_S, pace_s))
        self._lines[rank].append(call)
        self._count += 1
        self._bytes += call.size_bytes

    def take(self, now_s: float) -> list[PendingRequest]:
        """Remove and return the next portion, most important first; drop what has expired."""
        portion: list[PendingRequest] = []
        for line in self._lines:
            while line and len(portion) < _PORTION:
                call = line.popleft()
                self._count -= 1
                self._bytes -= call.size_bytes
                if call.expires_at > now_s:
                    portion.append(call)
                else:
                    # It has changed nothing.
                    error = UnavailableError("the call had expired before it was applied")
                    call.resolve(None, error)
        return portion


def _rank_of(operation: ops.AnyOperation) -> int:
    if isinstance(operation, numbered_batches.ClaimBatch) and operation.acked:
        return _FIRST  # It finishes the batch before.
    return _RANKS.get(type(operation), _MIDDLE)

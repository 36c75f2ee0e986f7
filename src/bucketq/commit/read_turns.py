"""Reads take turns: how many of a batch are answered before other work gets its turn.

While the state is read, nothing else happens in the process: no ping is answered and no commit
begins. So the reads of one round have a limited time. The rest wait for the next round, and clients
take turns, so that a client with thousands of reads does not delay the few of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.indexes.cold_rows import ColdRowsNeededError
from bucketq.model.operations import READS, Request
from bucketq.model.transitions import Applied

ROUND_S = 0.05
"""How long the reads of one round may take; the last of them may exceed it. A ping that is not
answered in 1.5 s counts against a broker."""


def reads_among(
    pending: Iterable[PendingRequest], operations: frozenset[type]
) -> list[PendingRequest]:
    """Return those with one of these operations whose callers still wait."""
    return [
        each
        for each in pending
        if type(each.request.operation) in operations and not each.is_resolved
    ]


def look_up_in_turns(
    reads: Sequence[PendingRequest],
    look_up: Callable[[Request], Applied],
    now_s: Callable[[], float],
    set_aside: Callable[[PendingRequest, ColdRowsNeededError], None],
) -> list[PendingRequest]:
    """Set the answers of reads, to be sent later; return those for which there is no time now.

    One that needs rows of segments is given to ``set_aside``.
    """

    def look_up_one(pending: PendingRequest) -> None:
        try:
            pending.applied = look_up(pending.request)
        except ColdRowsNeededError as needed:
            set_aside(pending, needed)
        except Exception as error:  # noqa: BLE001 - a bug of ours fails one request
            pending.resolve(None, error)

    # Heartbeats, which are reads for a broker, are cheap and urgent.
    cheap_first = sorted(reads, key=lambda pending: type(pending.request.operation) in READS)
    return read_in_turns(cheap_first, look_up_one, now_s)


def read_in_turns(
    reads: Sequence[PendingRequest],
    look_up: Callable[[PendingRequest], None],
    now_s: Callable[[], float],
) -> list[PendingRequest]:
    """Answer reads until the time of a round is over, at least one; return those that are left."""
    until_s = now_s() + ROUND_S
    lines: dict[object, deque[PendingRequest]] = {}
    for read in reads:
        lines.setdefault(read.owner, deque()).append(read)
    turns = deque(lines.values())
    while turns:
        line = turns.popleft()
        look_up(line.popleft())
        if line:
            turns.append(line)
        if now_s() >= until_s:
            break
    # What was first stays first, or one of many clients might never have its turn.
    return [read for line in turns for read in line]

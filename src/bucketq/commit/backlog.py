"""The requests of group commit without an answer: the batch that collects, and the one in flight.

Both are bounded together, by their number and by the bytes that they carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from bucketq.commit.waiting import Waiting
from bucketq.errors import OverloadedError

_MAX_WAITING = 20_000
_MAX_WAITING_BYTES = 256 * 1024 * 1024


class Backlog:
    """The requests of one queue without an answer."""

    def __init__(self) -> None:
        """Begin with none."""
        self.batch: list[Waiting] = []
        """What the next write takes along."""
        self.in_flight: list[Waiting] = []
        """What the write under way contains, or the look that confirms it."""
        self.size_bytes = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self.batch) + len(self.in_flight)

    def __iter__(self) -> Iterator[Waiting]:
        """All of them, in the order in which they are answered."""
        return chain(self.in_flight, self.batch)

    @property
    def is_awaited(self) -> bool:
        """Whether a caller still waits for one of them."""
        return any(not waiting.is_resolved for waiting in self)

    def admit(self, waiting: Waiting, where: str, retry_after_s: float) -> None:
        """Raise ``OverloadedError`` if there is no room; one that is alone always has room."""
        count = len(self)
        too_large = self.size_bytes + waiting.size_bytes > _MAX_WAITING_BYTES
        if count >= _MAX_WAITING or (too_large and count):
            message = (
                f"{count} requests ({self.size_bytes:,} bytes) wait to be written to {where} "
                "already: wait for some answers before you send more"
            )
            raise OverloadedError(message, retry_after_s=retry_after_s)

    def add(self, waiting: Waiting) -> None:
        """Take a request into the batch."""
        self.size_bytes += waiting.size_bytes
        self.batch.append(waiting)

    def drop(self, waiting: Waiting) -> None:
        """Take a request out of the batch; mostly it is the last that came."""
        if self.batch[-1] is waiting:
            self.batch.pop()
        else:
            self.batch.remove(waiting)
        self.size_bytes -= waiting.size_bytes

    def send(self) -> None:
        """Let the batch go in flight."""
        self.in_flight, self.batch = self.batch, []

    def put_back(self) -> None:
        """Let what was in flight collect again, before what came later."""
        self.batch = self.in_flight + self.batch
        self.in_flight = []

    def postpone(self, some: list[Waiting]) -> None:
        """Let some of what is in flight collect again, before what came later."""
        if some:
            later = set(map(id, some))
            self.in_flight = [waiting for waiting in self.in_flight if id(waiting) not in later]
            self.batch = some + self.batch

    def remove(self, some: list[Waiting]) -> None:
        """Take out some, wherever they are by now; those that were taken out before are ignored."""
        done = set(map(id, some))
        found = [waiting for waiting in self if id(waiting) in done]
        self.in_flight = [waiting for waiting in self.in_flight if id(waiting) not in done]
        self.batch = [waiting for waiting in self.batch if id(waiting) not in done]
        self.size_bytes -= sum(waiting.size_bytes for waiting in found)

    def split(self, operations: frozenset[type]) -> list[Waiting]:
        """Take those with one of these operations out of what is in flight."""
        found, left = list[Waiting](), list[Waiting]()
        for waiting in self.in_flight:
            is_found = type(waiting.request.operation) in operations
            (found if is_found else left).append(waiting)
        self.in_flight = left
        return found

    def settle(self) -> list[Waiting]:
        """Take out what was in flight."""
        settled, self.in_flight = self.in_flight, []
        self.size_bytes -= sum(waiting.size_bytes for waiting in settled)
        return settled

    def clear(self) -> list[Waiting]:
        """Take out everything."""
        left = [*self.in_flight, *self.batch]
        self.in_flight, self.batch, self.size_bytes = [], [], 0
        return left

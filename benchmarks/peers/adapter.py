"""What a queue must do to be measured: the few methods that every cell is written with.

One module for each peer has one small subclass, which uses the peer as the peer's own
documentation says. This module needs the standard library alone, so that a client process with
another Python, which has nothing but its peer, can load it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

Payload = dict[str, str]
"""A hundred bytes of JSON, no two alike. Adapters encode it as the peer's documentation does."""
KIND = "index"
"""The kind, function or entry point of every job."""


@dataclass
class Usage:
    """What a queue asked of its object storage."""

    writes: int = 0
    """PUT, POST and LIST, which providers charge at the higher rate."""
    reads: int = 0
    bytes_written: int = 0
    bytes_read: int = 0


class Adapter(ABC):
    """A connection to one queue, shared by all callers of a process."""

    has_bulk = False
    """Whether the peer has a call that pushes many jobs."""
    usage: Usage | None = None
    """Counted by peers on object storage if they were opened with ``slow=True``."""

    def __init__(self, address: str, *, connections: int = 1, slow: bool = False) -> None:
        """Remember where the queue is; ``setup`` connects.

        Args:
            address: The URL of the server, or the path of the file.
            connections: The most that a pool may open. Callers share them.
            slow: Behave as on object storage: every request to the file takes 50 ms longer.
        """
        self.address = address
        self.connections = connections
        self.slow = slow

    @abstractmethod
    async def setup(self, *, is_first: bool) -> None:
        """Connect. The first client of a new queue also makes its tables."""

    @abstractmethod
    async def push(self, payload: Payload) -> None:
        """Push a job; return when it is durable."""

    async def push_many(self, payloads: list[Payload]) -> None:
        """Push jobs in one call, for peers that have one; else one after the other."""
        for payload in payloads:
            await self.push(payload)

    @abstractmethod
    async def claim(self, limit: int) -> list[Any]:
        """Claim up to ``limit`` jobs; return an empty list if none waits."""

    @abstractmethod
    async def complete(self, jobs: list[Any]) -> None:
        """Complete jobs that were claimed together."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""

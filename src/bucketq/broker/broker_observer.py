"""``BrokerObserver``: what a broker reports about its work, for metrics.

A broker without an observer reports nothing, and spends no time on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from bucketq.model.base import Operation
from bucketq.store.resolve_write import Verdict


class CommitFacts(NamedTuple):
    """One commit in numbers."""

    verdict: Verdict
    took_s: float
    size_bytes: int
    """How many bytes were written."""
    requests: int
    """How many requests it has settled."""
    was_in_doubt: bool
    """Whether the answer of the storage was lost, and the object had to be read back."""


class BrokerObserver(Protocol):
    """Receives what happens at the broker of one queue, on its event loop. It must not raise."""

    def took_over(self) -> None:
        """Note that the broker leads from now on."""
        ...

    def committed(self, commit: CommitFacts) -> None:
        """Note a commit."""
        ...

    def answered(
        self, operation: Operation, answer: Any, error: Exception | None, took_s: float
    ) -> None:
        """Note that a request of a client was answered, so long after it had arrived."""
        ...

    def lease_expired(self) -> None:
        """Note that a worker was silent for too long, and has lost a job."""
        ...

"""A partition of a queue whose object is kept here."""

from __future__ import annotations

from datetime import UTC, datetime

from bucketq.model.partitions import FEATURE, Partition
from bucketq.model.state import State


def partitioned() -> State:
    """The fourth of eight partitions, as it is created."""
    state = State(incarnation="3f1c0b3a5d7e4f60", created_at=datetime(2026, 5, 17, tzinfo=UTC))
    state.requires[FEATURE] = None
    state.partition = Partition(3, 8, "0123456789abcdef")
    return state

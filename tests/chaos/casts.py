"""Who takes part in a run beside the brokers, and the settings of the queue that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LARGEST_PAYLOAD_BYTES = 2000
"""The queue's limit, which some pushes exceed on purpose."""


@dataclass(frozen=True)
class Member:
    """A process that is started again whenever it has ended."""

    role: str
    """Which program it runs."""
    called: str
    """What it is called in the table."""
    wish: dict[str, Any] = field(default_factory=dict)
    """How it connects, and how it behaves."""


@dataclass(frozen=True)
class Cast:
    """Everybody who uses the queue."""

    name: str
    members: tuple[Member, ...]
    settings: dict[str, Any]
    has_ways: bool = False
    """Whether the ways to the brokers can be cut."""

    @property
    def has_workers(self) -> bool:
        return any(member.role == "work" for member in self.members)


def _client(slot: int, role: str, launch: str) -> Member:
    wish = {
        "launch": launch,
        "timeout_s": 0.5 if slot % 4 == 0 else 4.0,
        "pause_s": 0.12 if role == "produce" else 0.01,
    }
    return Member(role, "clients", wish)


_SETTINGS: dict[str, Any] = {
    "heartbeat_s": 0.5,
    "clock_margin_s": 1.0,
    "max_attempts": 1000,
    "backoff": {"base_s": 0.05, "factor": 1.0, "max_s": 0.1},
    "archive_after_s": 1.0,
    "max_payload_bytes": LARGEST_PAYLOAD_BYTES,
}

PLAIN = Cast(
    "clients",
    (
        _client(0, "produce", "never"),
        _client(1, "produce", "inside"),
        _client(2, "produce", "never"),
        _client(3, "produce", "inside"),
        _client(4, "consume", "never"),
        _client(5, "consume", "inside"),
        _client(6, "consume", "never"),
        _client(7, "consume", "never"),
    ),
    _SETTINGS | {"lease_s": 2.0, "grace_s": 1.0},
)


def _worker(mode: str, launch: str = "never", **wish: Any) -> Member:
    how = {"mode": mode, "launch": launch, "timeout_s": 10.0, "concurrency": 6, "drain_s": 3.0}
    return Member("work", "workers", how | {"with_processes": False} | wish)


def _producer(timeout_s: float) -> Member:
    wish = {"launch": "never", "timeout_s": timeout_s, "pause_s": 0.06, "kinds": "handled"}
    return Member("produce", "producers", wish)


WORKERS = Cast(
    "workers",
    (
        _worker("direct", concurrency=3),
        _worker("direct", concurrency=3, with_processes=True),
        _worker("remote"),
        _worker("remote", with_processes=True, concurrency=3),
        _worker("auto"),
        _worker("auto", timeout_s=1.0),
        _worker("auto"),
        _worker("auto", "inside", with_processes=True, concurrency=3),
        _producer(4.0),
        _producer(0.5),
    ),
    _SETTINGS | {"lease_s": 4.0, "grace_s": 2.0, "dead_retention_s": 5.0},
    has_ways=True,
)

"""Fencing: only the broker that is recorded in the object writes as a broker.

The chain of commits shows who took over when, and the store knows which process wrote each commit.
A process that may lead writes only as a broker, so every one of its commits must carry its own
broker: either it takes over with this commit, or it did so before and no other broker has since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bucketq.model.state import State
from simulator.call_log import CallLog

Violation = tuple[str, str]
"""The name of an invariant, and how it was violated."""


@dataclass(frozen=True)
class Takeover:
    """One epoch: which process began it, when, and whether the broker before had retired."""

    epoch: int
    version: int
    time_s: float
    writer: str
    follows_retired: bool


@dataclass
class BrokerTracker:
    """The brokers of one chain of commits, collected in one pass."""

    takeovers: list[Takeover] = field(default_factory=list)
    _writers: dict[str, str] = field(default_factory=dict)
    """The process of each broker, by the broker's id."""

    def follow(
        self, history: CallLog, version: int, writer: str, before: State | None, state: State
    ) -> Violation | None:
        """Add the next commit; return a violation, or None."""
        old, new = before.broker if before else None, state.broker
        if old is not None and new is None:
            return "the epoch never falls", f"epoch {old.epoch} is forgotten"
        old_epoch = old.epoch if old else 0
        if new is not None and (old is None or new.id != old.id or new.epoch != old.epoch):
            if new.epoch != old_epoch + 1:
                return "the epoch rises with each takeover", f"{new.epoch} follows {old_epoch}"
            if new.id in self._writers and self._writers[new.id] != writer:
                return "a broker has one process", f"{writer} took over as {new.id}"
            self._writers[new.id] = writer
            time_s = history.store.history(history.key)[version - 1].time_s
            follows = old is None or not old.address
            self.takeovers.append(Takeover(new.epoch, version, time_s, writer, follows))
        elif new is not None and old is not None and new.address not in (old.address, ""):
            return "a broker stays where it is", f"{old.address} became {new.address}"
        if writer in history.leaders and version > 1:
            owner = self._writers.get(new.id) if new else None
            if owner != writer:
                return "only the broker that is recorded writes", f"{writer} in place of {owner}"
        return None

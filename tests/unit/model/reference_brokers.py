"""Brokers that take over and retire, as their rules define it, for the reference."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from bucketq.errors import SupersededError
from bucketq.model.operations import Lead, Retire
from bucketq.model.records import BrokerRecord, JobRecord

Seen = Callable[[str], JobRecord]


class BrokerReference:
    """Who serves a queue."""

    def __init__(self) -> None:
        """Begin without a broker."""
        super().__init__()
        self.broker: BrokerRecord | None = None

    def _lead(self, operation: Lead, now: datetime, _seen: Seen) -> BrokerRecord:
        broker, epoch = self.broker, operation.after + 1
        if broker and broker.address and (broker.id, broker.epoch) == (operation.id, epoch):
            return broker
        if (broker.epoch if broker else 0) != operation.after:
            raise SupersededError("")
        self.broker = BrokerRecord(operation.address, operation.id, epoch, now, operation.host)
        return self.broker

    def _retire(self, operation: Retire, _now: datetime, _seen: Seen) -> bool:
        broker = self.broker
        if broker is None or broker.id != operation.id or broker.epoch != operation.epoch:
            return False
        self.broker = BrokerRecord("", broker.id, broker.epoch, broker.since, broker.host)
        return True

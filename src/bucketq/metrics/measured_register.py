"""``MeasuredRegister``: a register that reports its commits to the observer of a broker.

It stands in for a register only if there are metrics, so commits that are not measured are as
they were.
"""

from __future__ import annotations

import asyncio

from bucketq.broker.broker import Broker
from bucketq.broker.broker_observer import CommitFacts
from bucketq.codec.document import Document, Prepared
from bucketq.commit.objects.register import Register, Settled
from bucketq.commit.objects.seen_object import SeenObject


class MeasuredRegister(Register):
    """A queue object whose commits are reported while its broker leads."""

    broker: Broker | None = None
    """The broker that uses it."""
    _was_read_back = False

    async def commit(self, document: Document, prepared: Prepared) -> Settled:
        """Write a prepared commit as a register does, and report it."""
        began_s = asyncio.get_running_loop().time()
        self._was_read_back = False
        settled = await super().commit(document, prepared)
        took_s = asyncio.get_running_loop().time() - began_s
        broker = self.broker
        if broker is not None and broker.observer is not None and broker.leader is not None:
            requests = len(broker.leader.committer.working.backlog.in_flight)
            size_bytes = len(prepared.body)
            facts = CommitFacts(settled.verdict, took_s, size_bytes, requests, self._was_read_back)
            broker.observer.committed(facts)
        return settled

    async def _read_back(
        self, document: Document, prepared: Prepared, base: SeenObject
    ) -> Document | None:
        self._was_read_back = True
        return await super()._read_back(document, prepared, base)

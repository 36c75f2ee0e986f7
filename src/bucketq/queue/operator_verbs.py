"""``OperatorVerbs``: the part of ``Queue`` that shows workers and what operators did."""

from __future__ import annotations

from typing import cast

import msgspec

from bucketq.model import check
from bucketq.model.audit_records import AuditEntry, ReadAudit
from bucketq.model.worker_records import Announce, DrainWorker, ReadWorkers, WorkerInfo
from bucketq.queue.arguments import Duration, seconds
from bucketq.queue.sender import Sender


class OperatorVerbs:
    """Workers, and the audit table."""

    _sender: Sender

    async def workers(self) -> list[WorkerInfo]:
        """List the workers that were heard lately, in the order of their names.

        One that has ended is not listed; one that was killed is, for ``worker_retention_s``.
        """
        rows = await self._sender.send(ReadWorkers())
        return [msgspec.convert(row, WorkerInfo, from_attributes=True) for row in rows]

    async def drain(self, worker: str, *, request: str | None = None) -> int:
        """Ask a worker to finish: it claims no more jobs, ends those that it runs, and exits.

        ``worker`` is its name, or its id if others have the same name; returns how many were asked.
        The request reaches a worker with its next heartbeat. A worker that is started later under
        the same name is not affected.

        Raises:
            WorkerNotFoundError: No such worker was heard lately; the message names those that were.
        """
        check.name(worker, "worker")
        return cast("int", await self._sender.send(DrainWorker(worker=worker), request))

    async def announce(
        self,
        worker: str,
        *,
        run_id: str,
        host: str,
        pid: int,
        version: str,
        up_s: Duration,
        kinds: tuple[str, ...] = (),
        concurrency: int = 1,
        running: int = 0,
        draining: bool = False,
        leaving: bool = False,
    ) -> bool:
        """List a worker, and return whether it was asked to finish.

        A ``Worker`` does that by itself. Code that claims jobs without one may do it with every
        heartbeat, also while it is idle, and once with ``leaving`` when it ends. ``run_id`` is
        new at each start, and ``up_s`` is how long ago that was.
        """
        operation = Announce(
            id=run_id,
            name=worker,
            host=host,
            pid=pid,
            version=version,
            concurrency=concurrency,
            up_s=seconds(up_s, "up_s"),
            kinds=kinds,
            running=running,
            draining=draining,
            leaving=leaving,
        )
        return cast("bool", await self._sender.send(operation))

    async def audit(self, *, limit: int | None = None) -> list[AuditEntry]:
        """Read what operators did to the queue, oldest first; with ``limit``, the latest so many.

        The queue keeps the last ``max_audit`` actions. What the same operator repeats within a
        minute is one entry.
        """
        if limit is not None:
            check.whole_number(limit, "limit", 1, 2**31)
        rows = await self._sender.send(ReadAudit(limit=limit or 0))
        return [msgspec.convert(row, AuditEntry, from_attributes=True) for row in rows]

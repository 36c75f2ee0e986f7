"""Procrastinate, by the calls of its tasks and of its worker: defer, fetch a job, finish it.

Tasks are deferred one by one or in batches; a worker fetches and finishes single jobs.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.adapter import KIND, Adapter, Payload
from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job, Status


class ProcrastinateQueue(Adapter):
    """An app with one task; finished jobs stay in the table, as by default."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        """Open a pool."""
        connector = PsycopgConnector(
            conninfo=self.address, min_size=1, max_size=self.connections, timeout=60
        )
        self.app: Any = App(connector=connector)
        self.task = self.app.configure_task(name=KIND, allow_unknown=True)
        await self.app.open_async()
        if is_first:
            await self.app.schema_manager.apply_schema_async()
        self.worker = await self.app.job_manager.register_worker()

    async def push(self, payload: Payload) -> None:
        """Defer a task."""
        await self.task.defer_async(**payload)

    async def push_many(self, payloads: list[Payload]) -> None:
        """Defer tasks."""
        await self.task.batch_defer_async(*payloads)

    async def claim(self, limit: int) -> list[Job]:
        """Fetch jobs, one after the other."""
        jobs: list[Job] = []
        while len(jobs) < limit:
            job = await self.app.job_manager.fetch_job(queues=None, worker_id=self.worker)
            if job is None:
                break
            jobs.append(job)
        return jobs

    async def complete(self, jobs: list[Job]) -> None:
        """Finish jobs, one after the other."""
        for job in jobs:
            await self.app.job_manager.finish_job(job, status=Status.SUCCEEDED, delete_job=False)

    async def close(self) -> None:
        """Close the pool."""
        await self.app.close_async()

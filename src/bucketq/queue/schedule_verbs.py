"""``ScheduleVerbs``: the part of ``Queue`` for jobs that it pushes by itself.

Brokers, embedded queues and workers fire schedules, by their own clocks; see ``schedule_firer``.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, Unpack, cast

from bucketq.model import check
from bucketq.model.schedules import (
    PauseSchedule,
    ReadSchedules,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
    SetAnswer,
)
from bucketq.queue.schedule import Schedule, ScheduleOptions, read_schedule, set_operation
from bucketq.queue.sender import Sender

T = TypeVar("T")


class ScheduleVerbs(Generic[T]):
    """Schedules."""

    _sender: Sender
    _payload_type: Any

    async def schedule(
        self,
        name: str,
        kind: str,
        payload: T,
        *,
        request: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> SetAnswer:
        """Let the queue push a job again and again; ``ScheduleOptions`` explains the options.

        Give ``cron``, which needs the extra ``cron``, or ``every_s``. A schedule of the same name
        is changed: if its times are the same, what was due before stays decided, and it stays
        paused if it was. Returns ``created``, ``changed`` or ``unchanged``. A due time is pushed
        once, by a broker, an embedded queue or a worker that is running.
        """
        self._sender.check_open()
        check.name(name, "schedule")
        operation = set_operation(name, kind, payload, options, self._payload_type)
        return cast("SetAnswer", await self._sender.send(operation, request))

    async def unschedule(self, name: str, *, request: str | None = None) -> bool:
        """Remove a schedule; return whether there was one. Jobs that it pushed stay."""
        check.name(name, "schedule")
        return cast("bool", await self._sender.send(RemoveSchedule(schedule=name), request))

    async def pause_schedule(self, name: str, *, request: str | None = None) -> None:
        """Push no more jobs of a schedule."""
        check.name(name, "schedule")
        await self._sender.send(PauseSchedule(schedule=name), request)

    async def resume_schedule(self, name: str, *, request: str | None = None) -> None:
        """Undo the pause of a schedule. What was due meanwhile never runs."""
        check.name(name, "schedule")
        await self._sender.send(ResumeSchedule(schedule=name), request)

    async def run_schedule(self, name: str, *, request: str | None = None) -> str:
        """Push the job of a schedule now, paused or not; return its id. Due times stay as they are.

        It counts as the last run, which ``alone`` waits for.
        """
        check.name(name, "schedule")
        request_id = self._sender.new_id(RunSchedule, request)
        operation = RunSchedule(schedule=name, job=request_id.job_id(0))
        return cast("str", (await self._sender.send_as(request_id, operation))[0])

    async def schedules(self) -> list[Schedule[T]]:
        """List the schedules, in the order in which they were made."""
        rows = await self._sender.send(ReadSchedules())
        return [read_schedule(row, self._payload_type) for row in rows]

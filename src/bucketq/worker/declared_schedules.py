"""Schedules that a worker declares: they are set when it starts.

Those that are the same already are left as they are, so any number of workers may declare the same.
Others that the queue has are logged, and stay: another worker may have declared them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Unpack

from bucketq.errors import BucketQError, InvalidRequestError
from bucketq.model import check
from bucketq.model.requests.stateless_checks import check_times
from bucketq.queue.arguments import to_seconds
from bucketq.queue.queue import Queue
from bucketq.queue.schedule import ScheduleOptions
from bucketq.worker.handlers import Handlers, bind
from bucketq.worker.typed_push import OpenQueues, Registers, add_pushes

_log = logging.getLogger("bucketq.worker")


class DeclaredSchedule(NamedTuple):
    """The arguments of ``Queue.schedule``."""

    name: str
    kind: str
    payload: Any
    options: ScheduleOptions


class DeclaredSchedules(dict[str, DeclaredSchedule]):
    """The schedules of a worker, by name."""

    def add(self, schedule: DeclaredSchedule) -> None:
        """Add a schedule. Raises ``InvalidRequestError`` if it is wrong, or is there already.

        Whether a cron expression can be read is not checked: that needs an extra.
        """
        check.name(schedule.name, "schedule")
        check.kind(schedule.kind)
        options = schedule.options
        cron, every_s = options.get("cron") or "", to_seconds(options.get("every_s")) or 0.0
        check_times(" ".join(cron.split()), options.get("timezone", "UTC"), every_s)
        if schedule.name in self:
            raise InvalidRequestError(
                f"schedule {schedule.name!r} is declared already: give each a name of its own"
            )
        self[schedule.name] = schedule


class ScheduleDeclarations:
    """The part of ``Worker`` that declares schedules."""

    _handlers: Handlers
    open_queues: OpenQueues

    @cached_property
    def schedules(self) -> DeclaredSchedules:
        """The schedules that it declares when it starts, by name."""
        return DeclaredSchedules()

    def schedule(
        self,
        name: str,
        kind: str | None = None,
        payload: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> Registers:
        """Declare a schedule: ``@worker.schedule("nightly", cron="0 3 * * *")`` above a function.

        When the worker starts, it sets the schedule as ``Queue.schedule`` does, and logs those of
        the queue that it does not declare. Above a function it also registers that as the handler
        of its kind, unless the kind has one. The worker runs even if the schedule cannot be set,
        and logs why: its token needs the right ``admin``.

        Args:
            name: The name of the schedule.
            kind: The kind of the jobs; the name of the schedule by default.
            payload: The payload of the jobs.
            **options: Those of ``Queue.schedule``: ``cron`` or ``every_s``, and others.
        """
        chosen = name if kind is None else kind
        self.schedules.add(DeclaredSchedule(name, chosen, payload, options))

        def register(function: Callable[..., Any]) -> Any:
            if chosen not in self._handlers:
                handler = bind(chosen, function)
                self._handlers.add(handler)
                add_pushes(handler, 0, None, self.open_queues)
            return function

        return register


async def declare(queue: Queue[Any], declared: Mapping[str, DeclaredSchedule]) -> None:
    """Set the schedules that are declared, and log the others. Nothing that fails is raised."""
    if not declared:
        return
    for name, kind, payload, options in declared.values():
        try:
            answer = await queue.schedule(name, kind, payload, **options)
        except BucketQError as error:
            _log.warning("schedule %s was not declared: %s", name, error)
        else:
            if answer != "unchanged":
                _log.info("schedule %s: %s", name, answer)
    try:
        found = await queue.schedules()
    except BucketQError as error:
        _log.info("the schedules of the queue cannot be listed: %s", error)
        return
    others = [schedule.name for schedule in found if schedule.name not in declared]
    if others:
        _log.info(
            "the queue has schedules that this worker does not declare: %s; `bucketq schedule rm` "
            "removes one",
            ", ".join(others),
        )

"""How workers are listed, and how one is asked to finish.

Nothing depends on the list: a worker that is not in it claims jobs like all others.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from msgspec.structs import replace

from bucketq.errors import WorkerNotFoundError
from bucketq.model import check
from bucketq.model.state import State
from bucketq.model.worker_records import (
    MOST_KINDS,
    RENEWALS,
    Announce,
    DrainWorker,
    ReadWorkers,
    WorkerRecord,
    merged,
)

_SHOWN = 20
"""How many workers an error names."""


def announce(state: State, operation: Announce, now: datetime) -> bool:
    """Note a worker, unless that was done a short time ago; say whether it is to finish.

    If there are as many as there may be, another one is not listed.
    """
    check_announcement(operation)
    row = state.workers.get(operation.id)
    if operation.leaving:
        if row is not None:
            state.forget("workers", row.id)
        return False
    if row is None:
        if len(state.workers) < state.settings.max_workers:
            _put(state, operation.row(state.workers.next_seq, now))
        return False
    is_draining = row.draining or operation.draining
    if is_draining != row.draining or _is_due(state, row, now):
        heard = operation.row(row.seq, now)
        _put(state, replace(heard, since=row.since, draining=is_draining))
    return row.draining


def check_announcement(operation: Announce) -> None:
    """Validate what a worker says of itself."""
    check.name(operation.id, "worker id")
    check.name(operation.name, "worker")
    check.name(operation.host, "host")
    check.name(operation.version, "version")
    check.whole_number(operation.pid, "pid", 0)
    check.whole_number(operation.concurrency, "concurrency", 0)
    check.whole_number(operation.running, "running", 0)
    check.delay(operation.up_s, "up_s")
    if operation.kinds:
        check.kinds(operation.kinds)
        check.whole_number(len(operation.kinds), "the number of kinds", 0, MOST_KINDS)


def drain(state: State, operation: DrainWorker, now: datetime) -> int:
    """Ask workers to finish: the next answer to each says so.

    Those that seem to be silent are asked too: perhaps only the clocks differ.

    Raises:
        WorkerNotFoundError: None that is not forgotten has this name or id.
    """
    check.name(operation.worker, "worker")
    chosen = [row for row in state.workers if operation.worker in (row.name, row.id)]
    if not chosen:
        raise not_found(operation.worker, read_workers(state, ReadWorkers(), now))
    for row in chosen:
        if not row.draining:
            _put(state, replace(row, draining=True))
    return len(chosen)


def read_workers(state: State, _operation: ReadWorkers, now: datetime) -> tuple[WorkerRecord, ...]:
    """List the workers that were heard lately.

    Rows are written rarely, so the jobs of a worker whose name no other has are counted here,
    unless some of them are in other partitions.
    """
    retention_s, jobs = state.settings.worker_retention_s, state.jobs.by_id
    rows = [row for row in state.workers if not row.is_silent(retention_s, now)]
    if state.partition is not None and state.partition.count > 1:
        return merged(tuple(rows), ())
    names = Counter(row.name for row in rows)
    held = Counter(jobs[job_id].worker for job_id in state.running) if rows else Counter()
    counted = (
        replace(row, running=held[row.name]) if names[row.name] == 1 else row for row in rows
    )
    return merged(tuple(counted), ())


def _put(state: State, row: WorkerRecord) -> None:
    state.workers.put(row)
    state.changes.append(("workers", row.id))


def _is_due(state: State, row: WorkerRecord, now: datetime) -> bool:
    """Whether a row is to be renewed; also if a clock was set back since."""
    renew = timedelta(seconds=state.settings.worker_retention_s / RENEWALS)
    return not timedelta(0) <= now - row.at < renew


def not_found(name: str, listed: tuple[WorkerRecord, ...]) -> WorkerNotFoundError:
    """Return the error for a name that none of the listed workers has."""
    names = list(dict.fromkeys(row.name for row in listed))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    known = f"those that are known are {shown}" if names else "none was heard lately"
    return WorkerNotFoundError(
        f"there is no worker {name!r}: {known}; after its start, and after that of a broker, one "
        "is known from its next heartbeat on"
    )

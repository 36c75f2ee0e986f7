"""What a broker records about itself, and about the heartbeats that it received.

A takeover names the epoch that it follows, and is rejected if the object has moved on, so a broker
with old information loses. The epoch stays when a broker retires, so it never falls.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from bucketq.errors import SupersededError
from bucketq.model import check
from bucketq.model.operations import Lead, Persist, Retire
from bucketq.model.records import HEARD, BrokerRecord
from bucketq.model.state import State


def lead(state: State, operation: Lead, now: datetime) -> BrokerRecord:
    """Take the queue over, unless another broker was first. It is idempotent."""
    check.name(operation.id, "broker id")
    check.name(operation.address, "broker address")
    check.name(operation.host, "broker host")
    before, epoch = state.broker, operation.after + 1
    if before is not None and before.address and (before.id, before.epoch) == (operation.id, epoch):
        return before
    if state.epoch != operation.after:
        raise SupersededError(
            f"the takeover was to follow epoch {operation.after}, but the queue is in epoch "
            f"{state.epoch}: another broker was first, or this one has retired"
        )
    state.broker = BrokerRecord(
        address=operation.address,
        id=operation.id,
        epoch=epoch,
        since=now,
        host=operation.host,
        tls=operation.tls,
    )
    state.touch_head()
    return state.broker


def retire(state: State, operation: Retire, _now: datetime) -> bool:
    """Clear the address of a broker that leaves; its successor's is never touched."""
    broker = state.broker
    if broker is None or (broker.id, broker.epoch) != (operation.id, operation.epoch):
        return False
    if broker.address:
        state.broker = replace(broker, address="")
        state.touch_head()
    return True


def persist(state: State, operation: Persist, now: datetime) -> int:
    """Note how long workers have been silent; a job that has moved on is skipped."""
    for silence in operation.silences:
        check.delay(silence.silent_s, "silent_s")
        if silence.progress is not None:
            check.progress(silence.progress)
    count = 0
    for silence in operation.silences:
        job = state.jobs.get(silence.job)
        if job is None or job.status != "running" or job.attempt != silence.attempt:
            continue
        silent_s = float(silence.silent_s) or HEARD
        heartbeat_at = now - timedelta(seconds=silent_s)
        come = job.progress if silence.progress is None else silence.progress
        state.put_job(replace(job, heartbeat_at=heartbeat_at, silent_s=silent_s, progress=come))
        count += 1
    return count

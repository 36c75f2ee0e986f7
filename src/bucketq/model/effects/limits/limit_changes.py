"""What is done to limits, and what keeps their token buckets sound.

A bucket is forgotten when every clock agrees that it is full, and mended if its time is further
ahead than it takes to fill it: then it was written by a clock that was wrong. So a clock that jumps
grants one full bucket at most, and holds nothing up for longer than a period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from bucketq.errors import RejectedError
from bucketq.model.effects.limits.limit_room import limit_of_group
from bucketq.model.limits import (
    EVERY_GROUP,
    FEATURE,
    BucketRecord,
    LimitInfo,
    LimitRecord,
    ReadLimits,
    RemoveLimit,
    SetLimit,
    group_target,
    kind_target,
)
from bucketq.model.requests.stateless_checks import check_limit, check_target
from bucketq.model.schedules import SetAnswer
from bucketq.model.state import State

_MOST_SHOWN = 100
"""So many limits that are reached are shown: there may be one for each of thousands of groups."""
_FORMAT = 2
"""The first format with a list of features."""


def set_limit(state: State, operation: SetLimit, now: datetime) -> SetAnswer:
    """Add a limit, or replace one. If it is the same already, nothing is changed."""
    check_limit(operation)
    if state.settings.max_format < _FORMAT:
        raise RejectedError(
            f"limits need max_format {_FORMAT}: run `bucketq upgrade` once every process of the "
            "queue has been upgraded"
        )
    known, most = state.limits.get(operation.target), state.settings.max_limits
    if known is None and len(state.limits) >= most:
        raise RejectedError(
            f"too many limits: the queue has {len(state.limits):,}, {most:,} are allowed "
            "(max_limits); remove those that are not used"
        )
    row = LimitRecord(
        id=operation.target,
        seq=state.limits.next_seq if known is None else known.seq,
        running=operation.running,
        rate=operation.rate,
        period_s=None if operation.period_s is None else float(operation.period_s),
    )
    if row == known:
        return "unchanged"
    state.requires[FEATURE] = None
    _change(state, lambda: state.put_limit(row), now)
    return "created" if known is None else "changed"


def remove_limit(state: State, operation: RemoveLimit, now: datetime) -> bool:
    """Remove a limit."""
    check_target(operation.target)
    if operation.target not in state.limits:
        return False
    _change(state, lambda: state.forget("limits", operation.target), now)
    return True


def read_limits(state: State, operation: ReadLimits, now: datetime) -> tuple[LimitInfo, ...]:
    """Return the limits, and how near each is."""
    if not operation.kind and not operation.group:
        return tuple(_info(state, limit, limit.id, now) for limit in state.limits)
    kind, group = kind_target(operation.kind), operation.group
    own = state.limits.get(kind), limit_of_group(state, group) if group else None
    targets = (kind, group_target(group))
    found = zip(own, targets, strict=True)
    return tuple(_info(state, limit, target, now) for limit, target in found if limit is not None)


def reached_limits(state: State, now: datetime) -> tuple[LimitInfo, ...]:
    """Return the limits that let nothing start now, those of some groups apart."""
    rows = [(limit, limit.id) for limit in state.limits]
    every = state.limits.get(group_target(EVERY_GROUP))
    if every is not None:
        buckets = [name for row in state.buckets if (name := _group_of(row.id))]
        names = islice(dict.fromkeys([*state.running.in_group, *buckets]), _MOST_SHOWN)
        targets = map(group_target, names)
        rows += [(every, target) for target in targets if target not in state.limits]
    infos = (replace(_info(state, limit, target, now), target=target) for limit, target in rows)
    return tuple(islice((info for info in infos if info.is_reached), _MOST_SHOWN))


def buckets_to_mend(state: State, now: datetime) -> Iterator[BucketRecord]:
    """Yield buckets to be forgotten or mended; it is cheap if there are none."""
    if not state.buckets:
        return
    margin = timedelta(seconds=state.settings.clock_margin_s)
    yield from state.buckets.full_before(now - margin)
    yield from state.buckets.empty_after(now + margin, lambda target: _period(state, target))


def mend_bucket(state: State, bucket: BucketRecord, now: datetime) -> None:
    """Forget a bucket that is full, or empty one that is to be full too late."""
    limit = _limit_of(state, bucket.id)
    if limit is None or limit.rate is None or bucket.full_at <= now:
        state.forget("buckets", bucket.id)
    else:
        state.put_bucket(replace(bucket, full_at=now + limit.period), limit.period)
        state.waiting.turns.show_all()


def _change(state: State, change: Callable[[], None], now: datetime) -> None:
    """Change a limit; buckets stay as full as they were, by the new rate."""
    before = {bucket.id: _limit_of(state, bucket.id) for bucket in state.buckets}
    change()
    state.buckets.forget_periods()
    for target, old in before.items():
        new, bucket = _limit_of(state, target), state.buckets.by_id[target]
        if new is None or new.rate is None or old is None:
            state.forget("buckets", target)
        elif old.period != new.period:
            missing = max(timedelta(0), bucket.full_at - now) / old.period
            state.put_bucket(replace(bucket, full_at=now + missing * new.period), new.period)
    state.waiting.turns.show_all()


def _limit_of(state: State, target: str) -> LimitRecord | None:
    """The limit that a bucket belongs to."""
    field, _, name = target.partition("=")
    return limit_of_group(state, name) if field == "group" else state.limits.get(target)


def _period(state: State, target: str) -> timedelta:
    limit = _limit_of(state, target)
    return timedelta(0) if limit is None else limit.period


def _group_of(target: str) -> str:
    field, _, name = target.partition("=")
    return name if field == "group" else ""


def _info(state: State, limit: LimitRecord, target: str, now: datetime) -> LimitInfo:
    active = tokens = None
    field, _, name = target.partition("=")
    if target != group_target(EVERY_GROUP):
        is_kind = field == "kind"
        active = state.count(name, "running") if is_kind else state.running.in_group.get(name, 0)
        if limit.rate is not None:
            bucket = state.buckets.get(target)
            tokens = max(0, limit.tokens(None if bucket is None else bucket.full_at, now))
    return LimitInfo(
        target=limit.id,
        running=limit.running,
        rate=limit.rate,
        period_s=limit.period_s,
        active=active,
        tokens=tokens,
    )


def groups_wait(state: State) -> bool:
    """Whether a job of the object has a group; it looks at all of them."""
    return any(job.group for job in state.jobs)

"""What time is it, if the clocks of the writers disagree?

Rows are forgotten when they are too old, and their times come from many clocks. A clock that is
hours ahead finds everything too old. So ages are judged by a time that the object keeps itself, and
that follows the slowest clock among those that write:

* A clock that shows at most ``clock_margin_s`` more than the agreed time moves that time on.
* A clock that shows less than that sets it back. Rows are kept too long then, which is safe.
* A clock that shows more is not believed at once: either it is ahead, or nothing was committed for
  a while, and one commit does not show which. Its time is noted, and is believed after it has
  stood for an hour in which no other clock showed less. By then, everything that was in the object
  at its first commit has really been there for that hour.

So one wrong clock forgets no idempotency key before its time. All that is needed is in the object:
it works for commands that commit once and end, and for a queue with one commit a day.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bucketq.model.operations import NoteTime
from bucketq.model.records import AgreedTime
from bucketq.model.state import State

_STANDING = timedelta(hours=1)
"""How long a clock that is ahead must stand alone before it is believed: as long as idempotency
keys are kept by default, so that those which it finds too old are so by any clock."""
_STEPS = 5
"""How often, within the margin, the time is recorded, so that it never falls a margin behind."""


def agreed(state: State, now: datetime) -> datetime:
    """The time to judge ages by, for a writer whose clock shows ``now``."""
    time = state.time
    return now if time is None or now <= time.at + _margin(state) else time.at


def is_due(state: State, now: datetime) -> bool:
    """Whether a commit should record the clock of its writer."""
    old, new = _known(state), _noted(state, now)
    if new.at < old.at or new.ahead_since != old.ahead_since:
        return True
    step = _margin(state) / _STEPS
    return new.at - old.at >= step or (new.ahead_until or now) - (old.ahead_until or now) >= step


def note(state: State, _operation: NoteTime, now: datetime) -> None:
    """Record the clock of a writer."""
    noted = _noted(state, now)
    if noted != state.time:
        state.time = noted
        state.touch_head()


def _known(state: State) -> AgreedTime:
    """What was noted; before that, the clock that the queue was created by."""
    return state.time or AgreedTime(at=state.created_at)


def _noted(state: State, now: datetime) -> AgreedTime:
    time, margin = _known(state), _margin(state)
    if now < time.at - margin:
        return AgreedTime(at=now)
    if now <= time.at + margin:
        return AgreedTime(at=max(time.at, now))
    since, until = time.ahead_since, time.ahead_until
    if since is None or until is None or now < until - margin:
        return AgreedTime(at=time.at, ahead_since=now, ahead_until=now)
    if now <= until + margin:
        until = max(until, now)
        if until - since >= _STANDING:
            return AgreedTime(at=until)
    elif now - since >= _STANDING:
        # There was nothing between two commits far apart: the earlier one has stood until now.
        return AgreedTime(at=until, ahead_since=now, ahead_until=now)
    else:
        until = now
    return AgreedTime(at=time.at, ahead_since=since, ahead_until=until)


def _margin(state: State) -> timedelta:
    return timedelta(seconds=state.settings.clock_margin_s)

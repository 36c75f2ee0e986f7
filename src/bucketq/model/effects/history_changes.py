"""The commits that keep the history of a queue bounded, and name the copies that it needs.

These operations come from the committer itself, but for ``ForgetHistory``, which an operator may
send too. Rows that they remove belong to versions that have landed, so that every later version
agrees on them.
"""

from __future__ import annotations

from datetime import datetime

from bucketq.model import check
from bucketq.model.history import COPY_VERSIONS, DropChanges, ForgetHistory, NameCopy
from bucketq.model.state import State


def drop_changes(state: State, operation: DropChanges, _now: datetime) -> int:
    """Remove rows that are in a history object, or are given up."""
    history = state.history
    dropped = history.drop_changes(operation.last)
    if operation.is_lost and dropped:
        history.rise(operation.last + 1)
        state.touch_head()
    state.changes.extend(("changes", row) for row in dropped)
    return len(dropped)


def name_copy(state: State, operation: NameCopy, _now: datetime) -> bool:
    """Keep a copy, if all that it names is still named.

    Only then it is certain that nothing of it was deleted: a sweep deletes what a version does not
    name, and no later version may name that again.
    """
    history, copy = state.history, operation.copy
    last = max((each.seq for each in history.copies), default=0)
    if not history.since or copy.seq <= last or copy.seq < history.since - 1:
        return False
    if state.version + 1 > copy.seq + COPY_VERSIONS:
        return False
    if not set(operation.names) <= state.cold.rows.names():
        return False
    history.copies.put(copy)
    state.changes.append(("heads", copy.id))
    return True


def forget_history(state: State, operation: ForgetHistory, _now: datetime) -> int:
    """Forget what happened before a version, at most all versions up to this one."""
    check.whole_number(operation.before, "before", 0)
    history = state.history
    before = min(operation.before, state.version + 1)
    if history.since and before > history.since:
        history.rise(before)
        state.touch_head()
    return history.since

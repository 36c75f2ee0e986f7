"""What every writer adds to its commits: the time, and the removal of what has become too old."""

from __future__ import annotations

from datetime import datetime

from bucketq.model.effects import timekeeping
from bucketq.model.effects.operators import is_untidy
from bucketq.model.operations import NoteTime, Request, Tidy
from bucketq.model.state import State
from bucketq.model.transitions import apply


def tidy(state: State, now: datetime) -> None:
    """Tidy a state that is about to be written."""
    if timekeeping.is_due(state, now):
        apply(state, Request(NoteTime()), now)
    if is_untidy(state, now):
        apply(state, Request(Tidy()), now)

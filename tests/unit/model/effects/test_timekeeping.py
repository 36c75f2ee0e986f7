"""The time by which ages are judged, if the clocks of the writers disagree."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.errors import CorruptStateError
from bucketq.model.effects.timekeeping import agreed, is_due
from bucketq.model.operations import Configure, NoteTime, Request
from bucketq.model.records import AgreedTime
from bucketq.model.transitions import apply
from tests.unit.model.driver import START, Driver

MARGIN_S = 300.0
HOUR_S = 3600.0


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def noted(*times_s: float) -> Driver:
    """A queue to which commits were made when the clocks of their writers showed these times."""
    queue = Driver()
    for time_s in times_s:
        apply(queue.state, Request(NoteTime()), at(time_s))
    return queue


def test_before_the_first_note_it_is_the_time_of_creation() -> None:
    queue = Driver()
    assert not is_due(queue.state, at(59))
    assert is_due(queue.state, at(10**7))
    apply(queue.state, Request(NoteTime()), at(10**7))
    assert agreed(queue.state, at(10**7)) == START


@pytest.mark.parametrize("time_s", [1.0, MARGIN_S])
def test_a_clock_within_the_margin_moves_the_time_on(time_s: float) -> None:
    queue = noted(0, time_s)
    assert queue.state.time == AgreedTime(at=at(time_s))
    assert agreed(queue.state, at(time_s + MARGIN_S)) == at(time_s + MARGIN_S)


def test_a_clock_that_is_ahead_is_not_believed_at_once() -> None:
    queue = noted(0, 7200)
    assert agreed(queue.state, at(7200)) == at(0)
    assert queue.state.time == AgreedTime(at=at(0), ahead_since=at(7200), ahead_until=at(7200))


def test_a_clock_that_is_ahead_is_believed_once_it_has_stood_for_an_hour() -> None:
    steps = [7200 + 200 * step for step in range(18)]
    assert agreed(noted(0, *steps).state, at(7200 + HOUR_S)) == at(0)
    assert noted(0, *steps, 7200 + HOUR_S).state.time == AgreedTime(at=at(7200 + HOUR_S))


def test_between_commits_far_apart_the_one_before_is_believed() -> None:
    day_s = 24 * HOUR_S
    queue = noted(0, day_s, 2 * day_s)
    assert agreed(queue.state, at(2 * day_s)) == at(day_s)
    queue = noted(0, 1000, 2000, 3000, 4000, 5000)
    assert agreed(queue.state, at(5000)) == at(4000)


def test_a_clock_that_shows_less_disputes_one_that_is_ahead() -> None:
    assert noted(0, 7200, 60).state.time == AgreedTime(at=at(60))
    queue = noted(0, 7200, 1000)
    assert queue.state.time == AgreedTime(at=at(0), ahead_since=at(1000), ahead_until=at(1000))
    assert agreed(noted(0, 1000, 7200).state, at(7200)) == at(1000)


def test_a_clock_that_is_behind_sets_the_time_back() -> None:
    queue = noted(0, -7200)
    assert queue.state.time == AgreedTime(at=at(-7200))
    assert agreed(queue.state, at(0)) == at(-7200)
    assert agreed(queue.state, at(-8000)) == at(-8000)


def test_the_time_is_written_down_a_few_times_within_the_margin() -> None:
    queue = noted(0)
    assert [is_due(queue.state, at(s)) for s in (0, 59, 60)] == [False, False, True]
    queue = noted(0, 7200)
    assert [is_due(queue.state, at(7200 + s)) for s in (0, 59, 60)] == [False, False, True]
    assert is_due(queue.state, at(1))  # It disputes the other.
    assert is_due(queue.state, at(-7200))


def test_without_a_margin_every_clock_that_shows_more_must_stand() -> None:
    queue = Driver()
    queue.ok(Configure(changes={"clock_margin_s": 0.0}))
    for time_s in (0.0, 1.0, 2.0):
        apply(queue.state, Request(NoteTime()), at(time_s))
    assert agreed(queue.state, at(2)) == at(0)


def test_the_time_is_kept_in_the_object() -> None:
    queue = noted(0, 7200)
    before = queue.state.time
    queue.reload()
    assert queue.state.time == before


def test_a_time_without_a_zone_is_refused() -> None:
    body = Document(noted(0).state).prepare("c").body
    text = body.replace(
        b'"time":{"at":"2025-03-01T12:00:00Z"', b'"time":{"at":"2025-03-01T12:00:00"'
    )
    assert text != body
    with pytest.raises(CorruptStateError, match=r"time\.at is a time without a zone"):
        decode(text, "test", accept=True)

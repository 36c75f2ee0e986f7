"""When schedules are due: intervals, cron expressions, and nights in which clocks are set."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.commit.due_times import NoCronError, check_cron, last_due, next_due
from bucketq.errors import InvalidRequestError

BERLIN = "Europe/Berlin"
CREATED = datetime(2025, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)


class Times(NamedTuple):
    cron: str = ""
    timezone: str = "UTC"
    every_s: float = 0.0
    created_at: datetime = CREATED


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def series(times: Times, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    for _ in range(count):
        due = next_due(times, found[-1] if found else after)
        assert due is not None
        found.append(due)
    return found


def test_an_interval_is_counted_from_the_creation() -> None:
    times = Times(every_s=300.0)
    assert next_due(times, CREATED) == CREATED + timedelta(seconds=300)
    assert next_due(times, CREATED - timedelta(days=1)) == CREATED + timedelta(seconds=300)
    assert next_due(times, CREATED + timedelta(seconds=300)) == CREATED + timedelta(seconds=600)
    assert next_due(times, CREATED + timedelta(seconds=899.9)) == CREATED + timedelta(seconds=900)


def test_an_interval_does_not_drift() -> None:
    times = Times(every_s=0.1 + 0.2 + 1.0)
    third = next_due(times, CREATED + timedelta(days=3650))
    assert third is not None
    assert (third - CREATED) % timedelta(seconds=1.3) == timedelta(0)


def test_the_last_runs_of_an_interval_are_found_however_long_it_was_away() -> None:
    times = Times(every_s=1.0)
    now = CREATED + timedelta(days=9000)
    due = last_due(times, CREATED, now, 100)
    assert due == [now - timedelta(seconds=count) for count in range(99, -1, -1)]
    assert last_due(times, now, now, 100) == []
    assert last_due(times, now, now - timedelta(hours=1), 100) == []


def test_a_cron_expression_is_read_in_its_zone() -> None:
    nightly = Times("0 3 * * *", BERLIN)
    assert next_due(nightly, at("2026-01-10T01:59:59")) == at("2026-01-10T02:00:00")
    assert next_due(nightly, at("2026-01-10T02:00:00")) == at("2026-01-11T02:00:00")
    assert next_due(nightly, at("2026-07-10T00:00:00")) == at("2026-07-10T01:00:00")


def test_a_time_in_a_gap_is_the_first_instant_after_it() -> None:
    """On 2026-03-29 clocks in Berlin go from 2:00 to 3:00, which is 1:00 in UTC."""
    nightly = Times("30 2 * * *", BERLIN)
    assert series(nightly, at("2026-03-28T00:00:00"), 3) == [
        at("2026-03-28T01:30:00"),
        at("2026-03-29T01:00:00"),
        at("2026-03-30T00:30:00"),
    ]


def test_times_in_a_gap_are_one_run() -> None:
    often = Times("*/15 * * * *", BERLIN)
    due = series(often, at("2026-03-29T00:30:00"), 4)
    assert due == [at(f"2026-03-29T{time}:00") for time in ("00:45", "01:00", "01:15", "01:30")]
    assert last_due(often, at("2026-03-29T00:30:00"), due[-1], 100) == due


def test_a_gap_that_does_not_end_at_a_full_hour() -> None:
    """On 2026-10-04 clocks on Lord Howe go from 2:00 to 2:30, which is 15:30 in UTC."""
    times = Times("10 2 * * *", "Australia/Lord_Howe")
    assert next_due(times, at("2026-10-03T15:00:00")) == at("2026-10-03T15:30:00")


def test_of_a_time_that_comes_twice_the_first_counts() -> None:
    """On 2026-10-25 clocks in Berlin go from 3:00 back to 2:00, which is 1:00 in UTC."""
    nightly = Times("30 2 * * *", BERLIN)
    assert series(nightly, at("2026-10-24T00:00:00"), 3) == [
        at("2026-10-24T00:30:00"),
        at("2026-10-25T00:30:00"),
        at("2026-10-26T01:30:00"),
    ]
    often = Times("*/30 * * * *", BERLIN)
    assert series(often, at("2026-10-25T00:00:00"), 2) == [
        at("2026-10-25T00:30:00"),
        at("2026-10-25T02:00:00"),
    ]


def test_runs_before_the_clocks_were_set_back_are_found_after_it() -> None:
    often = Times("*/30 * * * *", BERLIN)
    found = last_due(often, at("2026-10-25T00:00:00"), at("2026-10-25T01:10:00"), 100)
    assert found == [at("2026-10-25T00:30:00")]


def test_looking_back_costs_what_is_asked_for() -> None:
    now = at("2026-10-25T01:10:00")
    found = last_due(Times("* * * * *"), at("1990-01-01T00:00:00"), now, 3)
    assert found == [now - timedelta(minutes=count) for count in (2, 1, 0)]


ZONES = st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
CRONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 0 * * *", "15 1-3 * * 0", "59 23 28-31 3,10 *"]
)
MOMENTS = st.integers(0, 3 * 366 * 86400).map(
    lambda count: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=count)
)


@given(CRONS, ZONES, MOMENTS, st.integers(1, 300_000))
def test_looking_back_finds_what_looking_forward_would(
    cron: str, zone: str, after: datetime, seconds: int
) -> None:
    times, now = Times(cron, zone), after + timedelta(seconds=seconds)
    forward: list[datetime] = []
    due = next_due(times, after)
    while due is not None and due <= now and len(forward) < 6000:
        forward.append(due)
        due = next_due(times, due)
    assert last_due(times, after, now, 50) == forward[-50:]
    assert forward == sorted(set(forward))


@given(CRONS, ZONES, MOMENTS)
def test_a_due_time_is_on_the_wall_or_right_after_a_gap(
    cron: str, zone: str, after: datetime
) -> None:
    due = next_due(Times(cron, zone), after)
    assert due is not None
    local = due.astimezone(ZoneInfo(zone))
    before = (due - timedelta(seconds=1)).astimezone(ZoneInfo(zone))
    is_after_gap = before.utcoffset() != local.utcoffset()
    minutes = cron.split(maxsplit=1)[0]
    if not is_after_gap and minutes.isdigit():
        assert local.minute == int(minutes)
    assert local.second == 0


@pytest.mark.parametrize(
    ("cron", "zone", "text"),
    [
        ("61 * * * *", "UTC", "bad cron expression"),
        ("* * * *", "UTC", "bad cron expression"),
        ("0 0 31 2 *", "UTC", "bad cron expression"),
        ("0 0 * 2 MON#5 *", "UTC", "bad cron expression"),
        ("* * * * *", "Europe/Nowhere", "is not known on this host"),
        ("* * * * *", "../etc/passwd", "is not known on this host"),
        ("* * * * *", "", "is not known on this host"),
    ],
)
def test_what_cannot_be_read_is_refused(cron: str, zone: str, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        check_cron(cron, zone)


def test_without_the_library_only_intervals_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    assert next_due(Times(every_s=60.0), CREATED) is not None
    with pytest.raises(NoCronError, match=r"bucketq\[cron\]"):
        next_due(Times("* * * * *"), CREATED)
    with pytest.raises(InvalidRequestError, match=r"bucketq\[cron\]"):
        check_cron("* * * * *", "UTC")


def test_what_would_be_due_after_the_last_year_never_is() -> None:
    end = datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC)
    assert next_due(Times(every_s=60, created_at=end), end) is None
    assert next_due(Times(cron="0 3 * * *"), end) is None

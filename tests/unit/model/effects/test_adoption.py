"""Reservations, and the commit that adopts what was written under one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.errors import BucketQError, InvalidRequestError, QueueFullError, RejectedError
from bucketq.model.base import NewJob
from bucketq.model.effects.operators import is_untidy
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import Claim, Configure, Push, Request, Tidy
from bucketq.model.reservations import (
    Adopt,
    DropReservation,
    RenewReservation,
    Reserve,
    reservation_of,
)
from bucketq.model.segments import WrittenRows, WrittenSegment
from bucketq.model.settings import Settings
from bucketq.model.state import State
from bucketq.model.transitions import Applied
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, new_job

NOW = START + timedelta(seconds=1)
NAME, OTHER = "0123456789abcdef", "f" * 16
JOBS = tuple(new_job(f"j{number}", "ab"[number % 2]) for number in range(5))


class Deep(DeepState):
    """A queue, and short words for what tests do."""

    def __init__(self) -> None:
        """Begin empty, at version 7."""
        super().__init__(State(incarnation="test", created_at=START))
        self.state.version = 7

    def do(self, operation: Any, now: datetime = NOW) -> Any:
        """Apply an operation that must be granted."""
        applied = self.apply(Request(operation), now)
        assert applied.error is None, applied.error
        return applied.answer

    def error(self, operation: Any) -> BucketQError | None:
        """Apply an operation; return why it is refused."""
        return self.apply(Request(operation), NOW).error

    def reserve(self, name: str = NAME, writer: str = "w", batch: int = 0) -> str:
        """Reserve names for the segments of a writer."""
        found: str = self.do(Reserve(writer=writer, batch=batch, part=1, name=name))
        return found

    def adopt(
        self,
        reservation: str,
        segments: tuple[WrittenSegment, ...],
        writer: str = "w",
        **changes: Any,
    ) -> Applied:
        """Adopt segments, whose indexes were read."""
        records = tuple(each.record for each in segments)
        operation = Adopt(reservation=reservation, writer=writer, batch=0, part=1, segments=records)
        written = WrittenRows(segments, Settings())
        return self.apply(Request(replace(operation, **changes), written=written), NOW)

    def put(
        self, reservation: str, jobs: tuple[NewJob, ...] = JOBS, size: int = 2
    ) -> tuple[WrittenSegment, ...]:
        """Write jobs under a reservation."""
        return self.write_reserved(reservation, jobs, NOW, size)


def test_one_commit_names_the_segments_moves_the_position_and_ends_the_reservation() -> None:
    deep = Deep()
    deep.do(Push(jobs=(new_job("first", "a"),)))
    reservation = deep.reserve()
    assert reservation == f"r{8:020d}-{NAME}"
    assert [*deep.state.requires] == ["reservations"]
    segments = deep.put(reservation)
    assert deep.adopt(reservation, segments).answer is True
    assert len(deep.state.reservations) == 0
    assert deep.state.writers.by_id["w"].position == (0, 1)
    assert {job.id: job.seq for job in deep.jobs()} == {
        "first": 1,
        "j0": 2,
        "j1": 3,
        "j2": 4,
        "j3": 5,
        "j4": 6,
    }
    assert deep.state.next_seq == 7
    assert deep.state.counts == {("a", "queued"): 4, ("b", "queued"): 2}
    deep.reload()
    claimed = deep.do(Claim(worker="w", secret=SECRET, limit=9))
    assert [job.id for job in claimed] == ["first", "j0", "j1", "j2", "j3", "j4"]


def test_a_position_that_was_published_is_not_adopted_again() -> None:
    deep = Deep()
    reservation = deep.reserve()
    segments = deep.put(reservation)
    assert deep.adopt(reservation, segments).answer is True
    assert deep.adopt(reservation, segments).answer is False
    assert deep.do(Reserve(writer="w", batch=0, part=1, name=OTHER)) == ""
    assert len(deep.jobs()) == 5


def test_a_position_published_another_way_ends_the_reservation() -> None:
    deep = Deep()
    reservation = deep.reserve()
    segments = deep.put(reservation)
    deep.do(Publish(writer="w", batch=0, part=1, jobs=JOBS))
    assert deep.adopt(reservation, segments).answer is False
    assert len(deep.state.reservations) == 0
    assert len(deep.jobs()) == 5


@pytest.mark.parametrize("end", ["expired", "dropped", "replaced", "never"])
def test_nothing_is_adopted_without_its_reservation(end: str) -> None:
    deep = Deep()
    reservation = f"r{8:020d}-{NAME}" if end == "never" else deep.reserve()
    segments = deep.put(reservation)
    if end == "expired":
        deep.do(Tidy(), NOW + timedelta(days=2))
    elif end == "dropped":
        assert deep.do(DropReservation(reservation=reservation)) is True
        assert deep.do(DropReservation(reservation=reservation)) is False
    elif end == "replaced":
        deep.state.version += 1
        assert deep.reserve(OTHER) == f"r{9:020d}-{OTHER}"
        assert len(deep.state.reservations) == 1
    applied = deep.adopt(reservation, segments)
    assert isinstance(applied.error, RejectedError)
    assert "not listed any more" in str(applied.error)
    assert isinstance(deep.error(RenewReservation(reservation=reservation)), RejectedError)
    assert deep.jobs() == []
    assert not deep.state.writers


def test_processes_that_share_a_name_share_a_reservation() -> None:
    deep = Deep()
    join = Reserve(writer="w", batch=0, part=1, name=NAME, joins=True)
    reservation = deep.do(join)
    assert reservation == f"r{8:020d}-{NAME}"
    deep.state.version += 1
    deep.state.changes.clear()
    assert deep.do(join) == deep.reserve() == reservation
    assert not deep.state.has_changes, "it was just renewed"
    later = NOW + timedelta(hours=23)
    assert deep.do(join, later) == reservation
    assert deep.state.reservations.by_id[reservation].at == later


def test_a_process_of_an_earlier_run_does_not_fence_the_newest() -> None:
    deep = Deep()
    reservation = deep.reserve(OTHER)
    error = deep.error(Reserve(writer="w", batch=0, part=1, name=NAME, joins=True))
    assert isinstance(error, RejectedError)
    assert "another process has begun" in str(error)
    assert [*deep.state.reservations.by_id] == [reservation]
    assert deep.adopt(reservation, deep.put(reservation)).answer is True
    assert deep.do(Reserve(writer="w", batch=0, part=1, name=NAME, joins=True)) == ""


def test_a_reservation_expires_if_it_is_not_renewed() -> None:
    deep = Deep()
    reservation = deep.reserve()
    later = NOW + timedelta(hours=23)
    assert not is_untidy(deep.state, later)
    deep.do(RenewReservation(reservation=reservation), later)
    assert not is_untidy(deep.state, NOW + timedelta(hours=46))
    assert is_untidy(deep.state, NOW + timedelta(hours=48))
    assert deep.do(Tidy(), NOW + timedelta(hours=48)) == 1
    assert len(deep.state.reservations) == 0


@pytest.mark.parametrize(("setting", "limit"), [("max_jobs", 4), ("max_bytes", 300)])
def test_limits_hold(setting: str, limit: int) -> None:
    deep = Deep()
    reservation = deep.reserve()
    segments = deep.put(reservation)
    deep.do(Configure(changes={setting: limit}))
    applied = deep.adopt(reservation, segments)
    assert isinstance(applied.error, QueueFullError)
    assert len(deep.state.reservations) == 1
    deep.do(Configure(changes={setting: 10**6}))
    assert deep.adopt(reservation, segments).answer is True


def test_unique_jobs_are_not_adopted() -> None:
    deep = Deep()
    reservation = deep.reserve()
    segments = deep.put(reservation, (*JOBS, new_job("j9", unique="u")))
    error = deep.adopt(reservation, segments).error
    assert isinstance(error, InvalidRequestError)
    assert "push such jobs" in str(error)


def test_kinds_are_limited_by_the_indexes() -> None:
    deep = Deep()
    reservation = deep.reserve()
    segments = deep.put(reservation)
    deep.do(Configure(changes={"max_kinds": 1}))
    assert isinstance(deep.adopt(reservation, segments).error, QueueFullError)


@pytest.mark.parametrize(
    "change",
    [
        {"id": f"{100:020d}-{NAME}"},
        {"id": f"r{8:020d}-{OTHER}-{NAME}"},
        {"cls": "dead"},
        {"seq": 1},
        {"last": 9},
        {"live": 1},
        {"gone": ((0, 0),)},
        {"base": 5, "pushed_at": NOW},
    ],
    ids=str,
)
def test_an_entry_that_is_not_of_a_push_under_the_reservation_is_refused(
    change: dict[str, Any],
) -> None:
    deep = Deep()
    reservation = deep.reserve()
    first, *others = deep.put(reservation)
    bad = replace(first, record=replace(first.record, **change))
    applied = deep.adopt(reservation, (bad, *others))
    assert isinstance(applied.error, InvalidRequestError)
    twice = deep.adopt(reservation, (first, first))
    assert isinstance(twice.error, InvalidRequestError)
    assert deep.jobs() == []


def test_a_queue_of_format_1_takes_no_reservations() -> None:
    deep = Deep()
    deep.do(Configure(changes={"max_format": 1}))
    error = deep.error(Reserve(writer="w", batch=0, name=NAME))
    assert "bucketq upgrade" in str(error)
    assert not deep.state.requires


def test_a_queue_with_reservations_does_not_go_back_to_format_1() -> None:
    deep = Deep()
    reservation = deep.reserve()
    back = Configure(changes={"max_format": 1})
    assert "1 reservations" in str(deep.error(back))
    deep.do(DropReservation(reservation=reservation))
    assert deep.do(back).max_format == 1
    assert not deep.state.requires


def test_a_queue_with_a_history_takes_no_reservations_and_adopts_nothing() -> None:
    """Its history has every job that is pushed."""
    deep = Deep()
    reservation = deep.reserve()
    segments = deep.put(reservation)
    deep.do(Configure(changes={"history_retention_s": 60.0}))
    assert "history" in str(deep.error(Reserve(writer="w", batch=0, name=NAME)))
    assert "history" in str(deep.adopt(reservation, segments).error)
    assert deep.jobs() == []


def test_names_and_positions_are_checked() -> None:
    deep = Deep()
    for operation in (
        Reserve(writer="w", batch=0, name="../x"),
        Reserve(writer="", batch=0, name=NAME),
        Reserve(writer="w", batch=-1, name=NAME),
    ):
        assert isinstance(deep.error(operation), InvalidRequestError)
    assert not deep.state.has_changes


def test_reservations_are_limited_like_writers() -> None:
    deep = Deep()
    deep.do(Configure(changes={"max_writers": 1}))
    deep.reserve()
    assert "max_writers" in str(deep.error(Reserve(writer="x", batch=0, name=OTHER)))
    deep.reserve(OTHER)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"r{12:020d}-{NAME}-{OTHER}", (f"r{12:020d}-{NAME}", 12)),
        (f"{12:020d}-{NAME}", None),
        (f"r{12:020d}-{NAME}", None),
        (f"r{12:020d}-{NAME}-{OTHER}x", None),
    ],
)
def test_the_reservation_of_a_segment_is_in_its_name(name: str, expected: object) -> None:
    assert reservation_of(name) == expected

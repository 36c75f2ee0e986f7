"""A reservation that tasks share, each of which renews it while it runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from bucketq import connect_sync
from bucketq.codec.decode import decode
from bucketq.errors import RejectedError
from bucketq.model.reservations import ReservationRecord
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.table.held_reservation import HeldReservation

NAME, OTHER = "0123456789abcdef", "f" * 16
PATIENCE_S = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.json"


def held(path: Path, name: str = NAME) -> HeldReservation:
    return HeldReservation(QueueAccess(path.as_uri()), ("w", 0, 1, name))


def listed(path: Path) -> list[ReservationRecord]:
    return [*decode(path.read_bytes(), "queue").state.reservations]


def test_tasks_share_a_reservation_which_outlives_them(path: Path) -> None:
    with held(path) as one, held(path) as two:
        first = one.get()
        assert first is not None
        assert first == two.get()
        with pytest.raises(RejectedError, match="another process"), held(path, OTHER) as other:
            other.get()
    assert [row.id for row in listed(path)] == [first.id]
    assert not [each for each in threading.enumerate() if each.name == "bucketq-reservation"]


def test_it_is_renewed_while_a_task_blocks(path: Path) -> None:
    with connect_sync(path.as_uri(), mode="direct") as queue:
        queue.configure(reservation_retention_s=5)
    with held(path) as one:
        one.get()
        [before] = listed(path)
        until = time.monotonic() + PATIENCE_S
        while listed(path)[0].at == before.at and time.monotonic() < until:
            time.sleep(0.01)
        assert listed(path)[0].at > before.at


def test_a_queue_that_cannot_be_opened_fails_the_task(path: Path) -> None:
    path.write_bytes(b"not a queue")
    with pytest.raises(Exception, match="queue"), held(path) as one:
        one.get()

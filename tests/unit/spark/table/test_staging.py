"""Rows that wait for the driver: in a message or in an object, the same or an error, and gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bucketq.errors import CorruptStateError
from bucketq.spark.table.staging import ABANDONED_AFTER, INLINE_BYTES, Parcel, Staging


def staging(folder: Path, write_id: str = "w") -> Staging:
    return Staging((folder / "queue.json").as_uri(), write_id, inline_bytes=10)


def files(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*.jsonl") if path.is_file()
    )


def test_a_few_rows_travel_in_the_message(tmp_path: Path) -> None:
    rows = staging(tmp_path)
    parcel = rows.stage(b"x" * 10, 0, 0)
    assert parcel.body == rows.fetch(parcel) == b"x" * 10
    assert files(tmp_path) == []


def test_many_rows_are_staged_beside_the_queue_and_removed(tmp_path: Path) -> None:
    rows = staging(tmp_path)
    first, again = rows.stage(b"x" * 11, 3, 7), rows.stage(b"y" * 11, 3, 8)
    assert (first.body, rows.fetch(first), rows.fetch(again)) == (None, b"x" * 11, b"y" * 11)
    assert len(files(tmp_path)) == 2
    assert all(name.startswith("queue/staged/w!000003-") for name in files(tmp_path))
    rows.clear()
    assert files(tmp_path) == []


def test_clearing_leaves_other_writes_alone(tmp_path: Path) -> None:
    mine, other = staging(tmp_path, "a"), staging(tmp_path, "a-1")
    mine.stage(b"x" * 11, 0, 0)
    parcel = other.stage(b"y" * 11, 0, 0)
    mine.clear()
    assert other.fetch(parcel) == b"y" * 11


def test_clearing_removes_rows_that_were_abandoned_long_ago(tmp_path: Path) -> None:
    old, young = staging(tmp_path, "old"), staging(tmp_path, "young")
    for age_s, rows in ((3600, old), (-3600, young)):
        parcel = rows.stage(b"x" * 11, 0, 0)
        then = time.time() - ABANDONED_AFTER.total_seconds() - age_s
        os.utime(tmp_path / str(parcel.key), (then, then))
    staging(tmp_path).clear()
    assert [name.split("/")[-1].split("!")[0] for name in files(tmp_path)] == ["young"]


def test_through_a_broker_all_rows_travel_in_the_message() -> None:
    rows = Staging("bucketq://127.0.0.1:1/queue", "w")
    parcel = rows.stage(b"x" * (INLINE_BYTES + 1), 0, 0)
    assert rows.fetch(parcel) == b"x" * (INLINE_BYTES + 1)
    rows.clear()


def test_rows_that_are_gone_or_changed_are_reported(tmp_path: Path) -> None:
    rows = staging(tmp_path)
    parcel = rows.stage(b"x" * 11, 0, 0)
    assert parcel.key is not None
    with pytest.raises(CorruptStateError, match="not those that were staged"):
        rows.fetch(Parcel(key=parcel.key, digest="0"))
    rows.clear()
    with pytest.raises(CorruptStateError, match="are gone"):
        rows.fetch(parcel)


def test_an_error_while_clearing_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("a file where a folder should be")
    staging(tmp_path).clear()

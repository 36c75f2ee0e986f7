"""Where a job of a queue with partitions belongs."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import Raw

from bucketq.model.base import NewJob
from bucketq.model.job_ids import is_made_by, job_id, made_by
from bucketq.model.partitions import (
    OtherPartitionsError,
    Partition,
    compare,
    id_in_partition,
    partition_at,
    partition_of,
    place_of,
    split_lease,
    with_partition,
)

MADE = job_id("01J0000000", "session", 7, 0)


def job(**options: object) -> NewJob:
    return NewJob(**{"id": MADE, "kind": "mail", "payload": Raw(b"1")} | options)  # type: ignore[arg-type]


def test_what_decides_is_in_the_order_of_the_documentation() -> None:
    options = {"group": "g", "key": "k", "unique": "u", "batch_id": "b", "after": ("a",)}
    places = ["group=g", "key=k", "unique=mail/u", "id=b", "id=a", f"id={MADE}"]
    for place in places:
        assert place_of(job(**options)) == place
        if options:
            del options[next(iter(options))]


def test_partitions_are_where_other_implementations_look() -> None:
    # These must never change: a queue in use would lose its order, and find no keys.
    assert partition_at("group=acme", 8) == 6
    assert partition_at("key=order/4711", 8) == 1
    assert partition_at("unique=mail/user-17", 8) == 0
    assert partition_of("own", 8) == 2
    assert partition_of("01J000000000000000000000AB", 8) == 0
    assert partition_of("01J00000001A00000000000000", 8) == (32 + 10) % 8


def test_requests_are_spread_evenly() -> None:
    counts = Counter(partition_of(job_id("01J0000000", "s", n, 0), 8) for n in range(8000))
    assert min(counts.values()) > 800


def test_a_made_id_that_is_moved_is_still_made_by_its_request() -> None:
    for index in range(64):
        moved = id_in_partition(MADE, index)
        assert partition_of(moved, 64) == index
        assert is_made_by(made_by("session", 7), moved)
    assert not is_made_by(made_by("session", 8), MADE)


def test_a_lease_names_its_partition() -> None:
    assert split_lease(with_partition("abc", 12)) == ("abc", 12)
    assert split_lease("abc") == ("abc", None)
    assert split_lease("abc.x") == ("abc.x", None)


def test_another_partition_is_refused() -> None:
    found = Partition(3, 8, "q")
    assert compare(found, Partition(3, 8), "here") == found
    assert compare(None, None, "here") is None
    for wanted in (None, Partition(3, 4), Partition(2, 8), Partition(3, 8, "other")):
        with pytest.raises(OtherPartitionsError):
            compare(found, wanted, "here")
    with pytest.raises(OtherPartitionsError) as raised:
        compare(Partition(0, 8, "q"), None, "here")
    assert raised.value.count == 8

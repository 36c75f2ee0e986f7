"""The entries of segments: which rows have left, and where rows are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.model.segments import Gone

positions = st.lists(st.integers(0, 60), unique=True)


def ranges_of(left: set[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for position in sorted(left):
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1] = (ranges[-1][0], position)
        else:
            ranges.append((position, position))
    return ranges


@given(positions)
def test_positions_that_have_left_are_kept_as_the_fewest_ranges(left: list[int]) -> None:
    gone = Gone()
    for position in left:
        gone.add(position)
    assert list(gone.ranges) == ranges_of(set(left))
    assert gone.count == len(left)
    assert [position in gone for position in range(62)] == [p in left for p in range(62)]
    assert Gone(gone.ranges).ranges == gone.ranges


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=20))
def test_rows_that_leave_together_are_the_same_as_one_by_one(runs: list[tuple[int, int]]) -> None:
    together, alone, left = Gone(), Gone(), set[int]()
    for first, more in runs:
        positions = range(first, first + more + 1)
        if left.isdisjoint(positions):
            together.add(first, positions[-1])
            for position in positions:
                alone.add(position)
            left.update(positions)
        else:
            with pytest.raises(ValueError, match="has left before"):
                together.add(first, positions[-1])
        assert together.ranges == alone.ranges
        assert together.count == alone.count


@given(positions, st.integers(0, 61), st.integers(0, 61))
def test_the_next_live_position_and_counts_agree_with_a_set(
    left: list[int], start: int, stop: int
) -> None:
    gone = Gone(ranges_of(set(left)))
    assert gone.next_live(start) == next(p for p in range(start, 99) if p not in left)
    assert gone.count_between(start, stop) == sum(start <= p < stop for p in left)


@given(positions, st.integers(0, 62))
def test_all_positions_below_one_leave_at_once(left: list[int], stop: int) -> None:
    gone = Gone(ranges_of(set(left)))
    gone.add_below(stop)
    expected = {*left, *range(stop)}
    assert list(gone.ranges) == ranges_of(expected)
    assert gone.count == len(expected)


def test_a_row_cannot_leave_twice() -> None:
    gone = Gone([(3, 5)])
    with pytest.raises(ValueError, match="has left before"):
        gone.add(4)
    assert gone.ranges == ((3, 5),)


@pytest.mark.parametrize("ranges", [[(3, 2)], [(0, 4), (4, 6)], [(0, 4), (5, 6)], [(7, 8), (0, 1)]])
def test_ranges_that_are_out_of_order_or_touch_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="out of order"):
        Gone(ranges)

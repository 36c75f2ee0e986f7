"""How a worker that is stopped divides its time."""

from __future__ import annotations

import pytest

from bucketq.worker.drain import Drain


@pytest.mark.parametrize("drain_s", [0.0, 0.1, 1.0, 5.0, 10.0, 30.0, 600.0])
def test_each_part_has_time_before_the_end(drain_s: float) -> None:
    drain = Drain(drain_s)
    drain.begin(100.0)
    handlers_s = drain.handlers_left_s(100.0)
    assert 0.7 * drain_s - 0.001 <= handlers_s <= drain_s
    assert handlers_s >= drain_s - 5.0
    hurry_at = 100.0 + handlers_s
    drain.hurry(hurry_at)
    stop_s, settle_s = drain.stop_s(hurry_at), drain.settle_left_s(hurry_at)
    close_s, left_s = drain.close_left_s(hurry_at), drain.left_s(hurry_at)
    assert 0 < 1.5 * stop_s < settle_s < close_s < left_s
    assert hurry_at + left_s <= 100.0 + max(drain_s, 5.0)


def test_a_hurry_leaves_a_few_seconds_and_never_more_than_before() -> None:
    drain = Drain(30.0)
    drain.begin(0.0)
    drain.begin(10.0)
    drain.hurry(27.0)
    assert drain.left_s(27.0) == 3.0
    other = Drain(600.0)
    other.hurry(0.0)
    assert (other.handlers_left_s(0.0), other.left_s(0.0), other.left_s(9.0)) == (0.0, 5.0, 0.0)

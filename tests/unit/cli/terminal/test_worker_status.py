"""The numbers on the last line of a terminal."""

from __future__ import annotations

import pytest

from bucketq.cli.terminal.worker_status import Rate


def test_the_rate_is_averaged_over_the_last_seconds() -> None:
    rate = Rate()
    assert rate.note(100.0, 0) == 0.0
    assert rate.note(101.0, 10) == pytest.approx(10.0)
    for second in range(2, 30):
        steady = rate.note(100.0 + second, 10 * second)
    assert steady == pytest.approx(10.0)
    assert rate.note(160.0, 290) == 0.0


def test_many_drawings_at_once_keep_the_window() -> None:
    rate = Rate()
    for tick in range(2000):
        shown = rate.note(tick * 0.01, tick)
    assert shown == pytest.approx(100.0)
    assert len(rate._samples) < 15

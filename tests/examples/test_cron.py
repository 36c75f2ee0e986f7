"""The example that pushes by the clock: each period once, whoever is killed meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import bucketq
from examples.cron import key_of, period_of
from tests.examples.program import EXAMPLES, Program


def test_any_number_of_instances_push_each_period_once_and_catch_up(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    command = [str(EXAMPLES / "cron.py"), url, "tick", "--every", "1", "--catch-up", "30"]

    with ExitStack() as stack:
        one, other = (
            stack.enter_context(Program(command, tmp_path / f"{name}.txt"))
            for name in ("one", "other")
        )
        # What was there before it began is caught up first.
        one.until(has_pushed(32))
        other.until(has_pushed(32))
        one.kill()
        other.until(has_pushed(other.output().count("pushed") + 2))
        other.kill()
    with Program(command, tmp_path / "later.txt") as later:
        # Nobody was there for a while; from then on all is as if somebody had been.
        later.until(has_pushed(31))
    with bucketq.connect_sync(url) as queue:
        jobs = queue.jobs(limit=1000).jobs
    periods = sorted(datetime.fromisoformat(job.payload["period"]) for job in jobs)
    assert len(jobs) == len({job.key for job in jobs}) == len(set(periods))
    assert len(periods) >= 33
    steps = {after - before for before, after in pairwise(periods)}
    assert steps == {timedelta(seconds=1)}


def test_it_begins_with_the_period_that_it_is_started_in(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    command = [str(EXAMPLES / "cron.py"), url, "tick", "--every", "2"]
    started = period_of(datetime.now(UTC), timedelta(seconds=2))
    with Program(command, tmp_path / "output.txt") as program:
        program.until(has_pushed(2))
    with bucketq.connect_sync(url) as queue:
        periods = [datetime.fromisoformat(job.payload["period"]) for job in queue.jobs().jobs]
    assert periods[0] >= started
    assert periods[1] == periods[0] + timedelta(seconds=2)


def test_more_than_the_queue_remembers_is_not_caught_up(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    command = [str(EXAMPLES / "cron.py"), url, "tick", "--every", "60", "--catch-up", "3600"]
    with Program(command, tmp_path / "output.txt") as program:
        assert program.wait() == 1
    assert "set key_retention_s to 3660 or more" in program.output()


@pytest.mark.parametrize(
    ("every", "key"),
    [
        (timedelta(hours=1), "report/2026-11-15T10:00"),
        (timedelta(days=1), "report/2026-11-15T00:00"),
        (timedelta(seconds=5), "report/2026-11-15T10:59:55"),
    ],
)
def test_a_period_has_one_name_for_everybody(every: timedelta, key: str) -> None:
    when = datetime(2026, 11, 15, 10, 59, 59, 999999, tzinfo=UTC)
    assert key_of("report", period_of(when, every)) == key


def has_pushed(count: int) -> Callable[[str], bool]:
    return lambda output: len(re.findall(r"^pushed tick/", output, re.MULTILINE)) >= count

"""Dead jobs in segments: they are read in the order of their deaths, and no more than needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketq.codec import segment_index
from bucketq.model.effects import operators
from bucketq.model.effects.operators import is_cold_untidy, is_untidy
from bucketq.model.operations import (
    Claim,
    Configure,
    Fail,
    Purge,
    Push,
    ReadStats,
    Redrive,
    Request,
    Tidy,
)
from bucketq.model.records import AgreedTime
from bucketq.model.segments import Block, TidySegments
from bucketq.model.state import State
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, new_job

DAY = 86400.0


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two or three jobs fill a block."""
    monkeypatch.setattr(segment_index, "BLOCK_BYTES", 1000)


class Deaths(DeepState):
    """A queue whose jobs die, and a clock."""

    def __init__(self) -> None:
        """Begin without jobs."""
        super().__init__(State(incarnation="test", created_at=START))
        self.now = START

    def do(self, operation: Any) -> Any:
        """Apply an operation that must be granted."""
        return self.apply(Request(operation), self.now).result()

    def wait(self, seconds: float) -> None:
        """Let time pass, seen by all writers."""
        self.now += timedelta(seconds=seconds)
        self.state.time = AgreedTime(at=self.now)

    def die(self, *names: str) -> None:
        """Let jobs die one second after the other; the kind is the first letter."""
        for name in names:
            self.wait(1)
            self.do(Push(jobs=(new_job(name, name[0]),)))
            (job,) = self.do(Claim(worker="w", secret=SECRET, kinds=(name[0],)))
            self.do(Fail(job=job.id, lease=job.lease, error="no", retry=False))

    def spill_dead(self, count: int = 99) -> None:
        """Move dead jobs to a segment."""
        spill = self.spill("dead", self.now, count)
        assert spill is not None
        assert self.do(spill) == len(spill.jobs)

    def with_status(self, status: str) -> list[str]:
        """The jobs with a status, each of them in one place."""
        return [job.id for job in self.jobs() if job.status == status]

    def blocks_read(self) -> int:
        """How many blocks of rows were read."""
        return sum(isinstance(what, Block) for _, what in self.memory.read)


@pytest.fixture
def deaths() -> Deaths:
    """Sixty dead jobs in three segments, whose times overlap, and four in the object."""
    deaths = Deaths()
    names = [f"{kind}{number:02d}" for number in range(30) for kind in "ab"]
    deaths.die(*names)
    for start in (0, 1, 2):
        keep = {name for place, name in enumerate(names) if place % 3 == start}
        spill = deaths.spill("dead", deaths.now, 99)
        assert spill is not None
        jobs = [job for job in spill.jobs if job.id in keep]
        encoded = deaths.write("dead", jobs)
        spill = type(spill)(segment=deaths.written(encoded, deaths.now), jobs=tuple(jobs))
        assert deaths.do(spill) == 20
    deaths.die("a30", "b30", "a31", "b31")
    deaths.reload()
    deaths.memory.read.clear()
    return deaths


def test_a_limited_redrive_reads_only_the_first_deaths(deaths: Deaths) -> None:
    assert deaths.do(Redrive(limit=5)) == 5
    assert deaths.with_status("queued") == ["a00", "b00", "a01", "b01", "a02"]
    assert deaths.blocks_read() <= 6, "two blocks of each segment"
    assert len(deaths.state.jobs.by_id) <= 4 + 6 * 3
    assert deaths.do(Redrive(limit=3, kinds=("b",))) == 3
    assert deaths.with_status("queued")[5:] == ["b02", "b03", "b04"]
    assert len(deaths.with_status("dead")) == 56


def test_a_redrive_in_pages_queues_every_job_once(deaths: Deaths) -> None:
    pages = []
    while (page := deaths.do(Redrive(limit=25))) > 0:
        pages.append(page)
        spill = deaths.spill("ready", deaths.now, 99)
        assert spill is not None
        deaths.do(spill)
    assert pages == [25, 25, 14]
    assert len(deaths.with_status("queued")) == 64
    assert deaths.do(ReadStats()).total("dead") == 0


def test_a_purge_by_age_reads_no_later_deaths(deaths: Deaths) -> None:
    assert deaths.do(Purge(older_than_s=60.0)) == 4
    assert deaths.with_status("done") == ["a00", "b00", "a01", "b01"]
    assert deaths.blocks_read() <= 6


def test_jobs_that_are_named_are_read_at_once(deaths: Deaths) -> None:
    deaths.retry(deaths.state.attach_cold)
    names = tuple(f"{kind}{number:02d}" for number in range(0, 30, 5) for kind in "ab")
    rounds = []
    fetch = deaths.memory.fetch
    deaths.memory.fetch = lambda parts: (rounds.append(len(parts)), fetch(parts))  # type: ignore[assignment,func-returns-value]
    assert deaths.do(Redrive(jobs=names)) == 12
    assert len(rounds) == 2, "hashes and rows"
    assert deaths.with_status("queued") == list(names)


@pytest.mark.parametrize("attached", [True, False])
def test_the_oldest_deaths_beyond_max_dead_are_finished_in_pages(
    deaths: Deaths, monkeypatch: pytest.MonkeyPatch, *, attached: bool
) -> None:
    monkeypatch.setattr(operators, "_PAGE_JOBS", 8)
    if attached:
        deaths.retry(deaths.state.attach_cold)
    assert not is_cold_untidy(deaths.state, deaths.now)
    deaths.do(Configure(changes={"max_dead": 44}))
    assert not is_untidy(deaths.state, deaths.now), "the oldest are in segments"
    assert deaths.do(Tidy()) == 0
    pages = []
    while is_cold_untidy(deaths.state, deaths.now):
        pages.append(deaths.do(TidySegments()))
        assert deaths.blocks_read() <= 4 * len(pages) + 3
    assert pages == [8, 8, 4]
    assert deaths.with_status("done") == sorted(
        (f"{kind}{number:02d}" for number in range(10) for kind in "ab"),
        key=lambda name: (name[1:], name),
    )
    assert deaths.do(TidySegments()) == 0


def test_deaths_that_are_long_ago_are_finished(deaths: Deaths) -> None:
    deaths.do(Configure(changes={"dead_retention_s": 10 * DAY}))
    deaths.retry(deaths.state.attach_cold)
    deaths.wait(10 * DAY - 3.5)
    assert is_cold_untidy(deaths.state, deaths.now)
    assert deaths.do(TidySegments()) == 60
    assert not is_cold_untidy(deaths.state, deaths.now)
    assert deaths.with_status("dead") == ["a30", "b30", "a31", "b31"]
    deaths.wait(DAY)
    assert not is_cold_untidy(deaths.state, deaths.now), "the rest is in the object"
    assert deaths.do(Tidy()) == 4


def test_a_clock_that_is_ahead_finishes_none(deaths: Deaths) -> None:
    deaths.retry(deaths.state.attach_cold)
    deaths.now += timedelta(days=300)
    assert not is_cold_untidy(deaths.state, deaths.now)
    assert deaths.do(TidySegments()) == 0


def test_a_death_in_the_object_before_those_in_segments_is_finished_first(deaths: Deaths) -> None:
    deaths.do(Redrive(jobs=("a00",)))
    deaths.wait(-1000)
    (job,) = deaths.do(Claim(worker="w", secret=SECRET, kinds=("a",)))
    deaths.do(Fail(job=job.id, lease=job.lease, error="no", retry=False))
    deaths.do(Configure(changes={"max_dead": 63}))
    assert not is_cold_untidy(deaths.state, deaths.now)
    assert deaths.do(Tidy()) == 1
    assert deaths.with_status("done") == ["a00"]
    deaths.do(Configure(changes={"max_dead": 62}))
    assert not is_untidy(deaths.state, deaths.now)
    assert is_cold_untidy(deaths.state, deaths.now)


def test_dead_jobs_of_a_rare_kind_are_found_by_the_indexes() -> None:
    deaths = Deaths()
    common = [f"a{number:02d}" for number in range(90)]
    for start in (0, 30, 60):
        deaths.die(*common[start : start + 30], f"r{start}")
        deaths.spill_dead()
    deaths.die("r99", "a99")
    deaths.reload()
    deaths.memory.read.clear()
    assert deaths.do(Redrive(kinds=("none",))) == 0
    assert deaths.blocks_read() == 0
    assert deaths.do(Redrive(kinds=("r",), limit=2)) == 2
    assert deaths.with_status("queued") == ["r0", "r30"]
    assert deaths.blocks_read() <= 3
    assert deaths.state.cold.lent <= 1, "others are not decoded"
    assert deaths.do(Purge(kinds=("r",))) == 2
    assert deaths.with_status("done") == ["r60", "r99"]
    assert len(deaths.with_status("dead")) == 91
    assert deaths.do(Redrive()) == 91
    assert deaths.with_status("dead") == []


def test_a_block_of_a_kind_is_not_read_alone() -> None:
    deaths = Deaths()
    deaths.die(*(f"{'ab'[number % 2]}{number:03d}" for number in range(200)))
    deaths.spill_dead(200)
    deaths.reload()
    deaths.memory.read.clear()
    fetches = 0
    fetch = deaths.memory.fetch

    def count(parts: Any) -> None:
        nonlocal fetches
        fetches += 1
        fetch(parts)

    deaths.memory.fetch = count  # type: ignore[method-assign]
    assert deaths.do(Redrive(kinds=("b",))) == 100
    assert deaths.blocks_read() >= 60
    assert fetches <= 1 + deaths.blocks_read() // 16 + 1

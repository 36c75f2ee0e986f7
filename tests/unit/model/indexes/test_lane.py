"""A lane gives out the smallest waiting job, in whatever order jobs came and left."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from bucketq.model.indexes.lane import Lane
from bucketq.model.records import JobRecord
from tests.unit.model.driver import START


def job(seq: int, priority: int = 0) -> JobRecord:
    return JobRecord(
        id=f"j{seq}",
        kind="index",
        status="queued",
        seq=seq,
        payload=Raw(b"1"),
        pushed_at=START,
        priority=priority,
    )


class Jobs(dict[str, JobRecord]):
    """What waits and what has left, beside a lane."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.lane = Lane()

    def add(self, seq: int, priority: int = 0) -> None:
        added = job(seq, priority)
        self[added.id] = added
        self.lane.add(added)

    def insert(self, some: list[JobRecord]) -> None:
        self.update({each.id: each for each in some})
        self.lane.insert(some)

    def leave(self, seq: int) -> None:
        self[f"j{seq}"] = replace(self[f"j{seq}"], status="done")

    def drain(self) -> list[int]:
        numbers = []
        while (head := self.lane.head(self)) is not None:
            self.lane.pop(head)
            self.leave(head.seq)
            numbers.append(head.seq)
        return numbers


def test_an_empty_lane_has_no_head() -> None:
    assert Lane().head({}) is None


def test_jobs_that_come_late_go_before_those_behind_them() -> None:
    jobs = Jobs()
    for seq in (2, 4, 6, 1, 5, 3):
        jobs.add(seq)
    assert jobs.drain() == [1, 2, 3, 4, 5, 6]
    assert len(jobs.lane) == 0


def test_priority_goes_before_number() -> None:
    jobs = Jobs()
    for seq, priority in ((1, 3), (2, -1), (3, 0), (4, -1)):
        jobs.add(seq, priority)
    assert jobs.drain() == [2, 4, 3, 1]


def test_the_head_stays_until_it_is_taken() -> None:
    jobs = Jobs()
    jobs.add(1)
    assert jobs.lane.head(jobs) == jobs.lane.head(jobs) == jobs["j1"]


def test_the_head_is_the_record_of_today() -> None:
    jobs = Jobs()
    jobs.add(1)
    jobs["j1"] = replace(jobs["j1"], attempt=3)
    head = jobs.lane.head(jobs)
    assert head is jobs["j1"]


def test_jobs_that_left_are_skipped() -> None:
    jobs = Jobs()
    for seq in (3, 4, 5, 1, 2):
        jobs.add(seq)
    for seq in (1, 3, 4):
        jobs.leave(seq)
    del jobs["j2"]
    assert jobs.drain() == [5]


def test_a_lane_that_was_emptied_sorts_afresh() -> None:
    jobs = Jobs()
    jobs.add(10)
    assert jobs.drain() == [10]
    for seq in (1, 2, 3):
        jobs.add(seq)
    assert not jobs.lane._heap
    assert jobs.drain() == [1, 2, 3]


def test_entries_of_jobs_that_left_do_not_pile_up() -> None:
    jobs = Jobs()
    for seq in range(2, 10_002, 2):
        jobs.add(seq)
    for seq in range(1, 10_001, 2):
        jobs.add(seq)
    for seq in range(1, 9_990):
        jobs.leave(seq)
        jobs.lane.sweep(jobs, waiting_count=10_000 - seq)
    assert len(jobs.lane) < 2000
    assert jobs.drain() == list(range(9_990, 10_001))


def test_taken_entries_do_not_pile_up() -> None:
    jobs = Jobs()
    for seq in range(20_000):
        jobs.add(seq)
        jobs.add(seq + 100_000)
        head = jobs.lane.head(jobs)
        assert head is not None
        jobs.lane.pop(head)
        jobs.leave(head.seq)
    assert len(jobs.lane) == 20_000
    assert len(jobs.lane._run) <= 42_000


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "take", "run", "leave", "back", "sweep"]), st.integers(0)
        ),
        max_size=120,
    ),
    st.lists(st.integers(-2, 2), min_size=5, max_size=5),
)
def test_a_lane_agrees_with_a_sorted_list(steps: list[tuple[str, int]], ranks: list[int]) -> None:
    jobs = Jobs()
    waiting: list[JobRecord] = []
    taken: list[JobRecord] = []
    for step, number in steps:
        if step == "add":
            jobs.add(len(jobs), ranks[number % 5])
            waiting.append(jobs[f"j{len(jobs) - 1}"])
        elif step == "take":
            head = jobs.lane.head(jobs)
            assert head == min(waiting, key=lambda job: job.order, default=None)
            if head is not None:
                jobs.lane.pop(head)
                jobs.leave(head.seq)
                waiting.remove(head)
                taken.append(head)
        elif step == "run":
            before = (ranks[number % 5], number % 50)
            run = jobs.lane.next_run(jobs, number % 4 + 1, before)
            ordered = sorted(waiting, key=lambda job: job.order)
            assert run == ordered[: len(run)]
            assert len(run) <= number % 4 + 1
            assert all(each.order < before for each in run)
            jobs.lane.skip(len(run))
            for each in run:
                jobs.leave(each.seq)
                waiting.remove(each)
        elif step == "leave" and waiting:
            jobs.leave(waiting.pop(number % len(waiting)).seq)
        elif step == "back" and taken:
            some = sorted(taken[-(number % 5 + 1) :], key=lambda each: each.seq)
            del taken[-len(some) :]
            jobs.insert(some)
            waiting += some
        elif step == "sweep":
            jobs.lane.sweep(jobs, -10_000)
    assert jobs.drain() == [job.seq for job in sorted(waiting, key=lambda job: job.order)]


def test_a_run_ends_at_a_place_at_a_job_that_left_and_at_one_with_a_time() -> None:
    jobs = Jobs()
    for seq in range(6):
        jobs.add(seq)
    assert [each.seq for each in jobs.lane.next_run(jobs, 4, None)] == [0, 1, 2, 3]
    assert [each.seq for each in jobs.lane.next_run(jobs, 10, (0, 3))] == [0, 1, 2]
    jobs.leave(2)
    assert [each.seq for each in jobs.lane.next_run(jobs, 10, None)] == [0, 1]
    timed = replace(job(7), expires_at=START)
    jobs[timed.id] = timed
    jobs.lane = Lane([jobs["j4"], timed])
    assert [each.seq for each in jobs.lane.next_run(jobs, 10, None)] == [4]
    jobs.add(3)  # It came late, and is looked at by itself.
    assert jobs.lane.next_run(jobs, 10, None) == []


def test_jobs_of_a_segment_are_one_run_with_those_that_came_after_them() -> None:
    jobs = Jobs()
    for seq in range(100, 103):
        jobs.add(seq)
    for first in (1, 10):  # Blocks of a segment, one when the other is used up.
        block = [job(seq) for seq in range(first, first + 3)]
        jobs.insert(block)
        assert jobs.lane.next_run(jobs, 3, None) == block
        jobs.lane.skip(3)
    assert [each.seq for each in jobs.lane.next_run(jobs, 9, None)] == [100, 101, 102]


def test_jobs_out_of_order_are_claimed_in_order() -> None:
    jobs = Jobs()
    jobs.insert([job(5), job(3), job(4)])
    assert jobs.drain() == [3, 4, 5]


def test_jobs_are_taken_out_wherever_they_stand() -> None:
    jobs = Jobs()
    for seq, priority in ((1, 0), (2, 0), (3, 0), (4, -1), (5, -1)):
        jobs.add(seq, priority)
    jobs.lane.remove({1, 3, 5})
    jobs.add(6)
    order = []
    while (head := jobs.lane.head(jobs)) is not None:
        jobs.lane.pop(head)
        order.append(head.seq)
    assert order == [4, 2, 6]

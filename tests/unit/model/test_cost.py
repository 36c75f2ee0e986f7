"""A request costs the same in a queue of a hundred thousand jobs as in one of a thousand."""

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from bucketq.model.effects.operators import is_untidy
from bucketq.model.job_batches import CloseBatch, OpenBatch
from bucketq.model.numbered_batches import AckBatch, ClaimBatch, OpenConsumer, Publish, ReleaseBatch
from bucketq.model.operations import Cancel, Complete, Fail, Heartbeat, Push, Redrive, Release, Tidy
from tests.unit.model.driver import SECRET, Driver, lease_of, new_job, ref

SMALL = 1_000
LARGE = 64_000
ROUNDS = 100
LINES_BOUND = 1.5
"""How many more lines may run in the large queue. A loop over all jobs shows as a hundred."""
TIME_BOUND = 5.0
"""How much longer the large queue may take, for loops that Python does not see."""


Step = Callable[[int], None]


def filled(count: int) -> Driver:
    """A queue with jobs of ten kinds, some of them delayed, running, done and dead."""
    queue = Driver(max_attempts=100, max_batch_jobs=100_000, backoff={"base_s": 0.0})
    for number in range(0, count, 1000):
        queue.ok(
            Push(
                jobs=tuple(
                    new_job(
                        f"j{n}",
                        f"kind{n % 10}",
                        priority=n % 3,
                        delay_s=3600.0 if n % 7 == 0 else None,
                        key=f"k{n}" if n % 5 == 0 else None,
                    )
                    for n in range(number, number + 1000)
                )
            )
        )
    running = queue.claim(limit=count // 10)
    for place, job in enumerate(running):
        if place % 3 == 0:
            queue.complete(job)
        elif place % 3 == 1:
            queue.fail(job, retry=False)
    for number in range(count // 10):
        queue.ok(Publish(writer=f"w{number}", batch=1, jobs=()))
    for number in range(count // 100):
        queue.ok(OpenConsumer(consumer=f"c{number}"))
    return queue


@pytest.fixture(scope="module")
def large() -> Driver:
    return filled(LARGE)


def push(queue: Driver) -> Step:
    def step(number: int) -> None:
        queue.push(f"new{queue.state.next_seq}", f"kind{number % 10}", priority=number % 3)

    return step


def push_with_key(queue: Driver) -> Step:
    def step(_number: int) -> None:
        queue.push(f"new{queue.state.next_seq}", "kind1", key=f"new{queue.state.next_seq}")

    return step


def claim_and_complete(queue: Driver) -> Step:
    def step(_number: int) -> None:
        job = queue.claim_one()
        queue.ok(Heartbeat(leases=(ref(job),)))
        queue.ok(Complete(job=job.id, lease=lease_of(job)))

    return step


def claim_and_fail(queue: Driver) -> Step:
    def step(number: int) -> None:
        job = queue.claim_one(f"kind{number % 10}")
        queue.ok(Fail(job=job.id, lease=lease_of(job), error="boom"))

    return step


def claim_and_die(queue: Driver) -> Step:
    def step(number: int) -> None:
        job = queue.claim_one(f"kind{number % 10}")
        queue.ok(Fail(job=job.id, lease=lease_of(job), error="boom", retry=False))

    return step


def claim_and_release_for_later(queue: Driver) -> Step:
    def step(_number: int) -> None:
        job = queue.claim_one()
        queue.ok(Release(job=job.id, lease=lease_of(job), delay_s=100.0))

    return step


def push_and_cancel(queue: Driver) -> Step:
    def step(_number: int) -> None:
        job_id = queue.push(f"new{queue.state.next_seq}", "kind3", delay_s=50.0)
        queue.ok(Cancel(job=job_id))

    return step


def publish(queue: Driver) -> Step:
    def step(number: int) -> None:
        batch = queue.state.next_seq
        job = new_job(f"new{batch}", f"kind{number % 10}")
        assert queue.ok(Publish(writer=f"w{number}", batch=batch, jobs=(job,))) is True
        is_untidy(queue.state, queue.now)

    return step


def claim_and_close_a_batch(queue: Driver) -> Step:
    def step(number: int) -> None:
        consumer = f"c{number % 10}"
        opened = queue.ok(OpenConsumer(consumer=consumer))
        name = {"consumer": consumer, "epoch": opened.epoch, "batch": opened.batch + 1}
        claim = ClaimBatch(**name, secret=SECRET, worker="w")
        assert queue.ok(claim).jobs == queue.ok(claim).jobs == 1
        queue.ok((ReleaseBatch if number % 4 else AckBatch)(**name))
        is_untidy(queue.state, queue.now)

    return step


def tidy(queue: Driver) -> Step:
    def step(_number: int) -> None:
        is_untidy(queue.state, queue.now)
        queue.ok(Tidy())

    return step


def lines(step: Step) -> int:
    """How many lines of Python a number of steps take: the same in every run."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        for number in range(ROUNDS):
            step(number)
    finally:
        sys.settrace(outer)
    return count


def best_s(step: Step) -> float:
    """The shortest of several runs in time of this process, so that others do not count."""
    runs = []
    for _ in range(5):
        start = time.process_time()
        for number in range(ROUNDS):
            step(number)
        runs.append(time.process_time() - start)
    return min(runs)


@pytest.mark.parametrize(
    "verb",
    [
        push,
        push_with_key,
        claim_and_complete,
        claim_and_fail,
        claim_and_die,
        claim_and_release_for_later,
        push_and_cancel,
        publish,
        claim_and_close_a_batch,
        tidy,
    ],
)
def test_a_request_costs_the_same_at_any_size(
    verb: Callable[[Driver], Step], large: Driver
) -> None:
    small = filled(SMALL)
    assert lines(verb(large)) < LINES_BOUND * lines(verb(small))
    gc.disable()
    try:
        ratio = best_s(verb(large)) / best_s(verb(small))
    finally:
        gc.enable()
    assert ratio < TIME_BOUND, f"{ratio:.1f} times as long in the large queue"


def batched(count: int) -> Driver:
    """A queue with a closed batch, and some jobs that wait for one of its jobs."""
    queue = Driver(max_format=2, max_batch_jobs=100_000)
    queue.ok(OpenBatch(batch="b1", on_done=new_job("", "report")))
    queue.push_many(*(f"j{n}" for n in range(count)), batch_id="b1")
    queue.ok(CloseBatch(batch="b1"))
    queue.push_many(*(f"held{n}" for n in range(10)), after=(f"j{count - 1}",))
    return queue


def test_ending_a_job_of_a_batch_costs_the_same_at_any_size() -> None:
    small, large = batched(SMALL), batched(LARGE)
    assert lines(claim_and_complete(large)) < LINES_BOUND * lines(claim_and_complete(small))
    assert large.state.batches.by_id["b1"].completed > ROUNDS // 2


def test_jobs_that_come_and_go_leave_nothing_behind() -> None:
    queue = Driver(max_attempts=1_000_000, backoff={"base_s": 0.1, "factor": 1})
    queue.push_many("j1", "j2", "j3")
    for _ in range(5000):
        queue.wait(1)
        job = queue.claim_one()
        queue.fail(job)
    for number in range(5000):
        queue.push(f"c{number}", delay_s=60.0)
        queue.ok(Cancel(job=f"c{number}"))
    state = queue.state
    lanes = sum(len(lane) for lane in state.waiting.lanes.values())
    assert lanes + len(state.delayed) + len(state.dead_ages) < 5000


def test_jobs_that_die_again_and_again_leave_nothing_behind() -> None:
    queue = Driver()
    queue.push("j1")
    for _ in range(5000):
        queue.wait(1)
        queue.fail(queue.claim_one(), retry=False)
        assert queue.ok(Redrive()) == 1
    assert len(queue.state.dead_ages) < 2000

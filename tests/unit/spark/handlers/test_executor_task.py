"""Jobs on an executor: each ends by itself, in time, with a reply."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from bucketq.model.records import JobRecord
from bucketq.process_memory import freeze_modules
from bucketq.spark.handlers.executor_task import (
    HandlerOutcome,
    TaskSettings,
    run_batches,
    run_jobs,
    run_rows,
)
from bucketq.spark.handlers.pickled_handlers import PickledHandlers, pickle_handlers
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, UnfitPayload
from bucketq.worker.handlers import Handler, bind
from bucketq.worker.runners.reply import Reply, value_of
from tests.unit.worker import process_handlers
from tests.unit.worker.engine_harness import claimed_job


def settings(*handlers: Handler, concurrency: int = 10, **fields: Any) -> TaskSettings:
    fields = {"budget_s": 60.0, **fields}
    pickled = pickle_handlers({handler.kind: handler for handler in handlers})
    return TaskSettings(pickled, concurrency, **fields)


def record(kind: str, payload: Any = None) -> JobRecord:
    return claimed_job(payload, kind=kind).record


def replies(outcomes: list[HandlerOutcome]) -> list[Reply]:
    return [outcome.reply for outcome in outcomes if outcome.reply is not None]


def run_one(function: Callable[..., Any], payload: Any = None, **options: Any) -> Any:
    task = settings(bind("x", function, **options))
    [reply] = replies(run_jobs(task, [record("x", payload)]))
    return value_of(reply)


async def double_soon(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def fail(payload: Any) -> None:
    message = f"no luck with {payload}"
    raise ValueError(message)


def refuse_for_good() -> None:
    message = "never"
    raise GiveUp(message)


def ask_again() -> None:
    message = "later"
    raise Retry(message, delay_s=7)


def bytes_of(payload: str) -> bytes:
    return payload.encode()


def push_next(number: int, context: Context) -> str:
    return context.push("next", number + 1)


@pytest.mark.parametrize("isolation", ["shared", "isolated"])
def test_jobs_that_handlers_push_come_with_their_outcomes(isolation: Any) -> None:
    task = settings(bind("first", push_next), bind("fail", fail), isolation=isolation)
    first, failed, second = replies(
        run_jobs(task, [record("first", 1), record("fail", 2), record("first", 5)])
    )
    assert [bytes(job.payload) for job in (*first.follow_ups, *second.follow_ups)] == [b"2", b"6"]
    assert value_of(first) == first.follow_ups[0].id
    assert failed.follow_ups == ()


@pytest.mark.parametrize("isolation", ["shared", "isolated"])
def test_outcomes_are_in_the_order_of_the_jobs(isolation: Any) -> None:
    task = settings(bind("double", double_soon), bind("fail", fail), isolation=isolation)
    kinds = ["double", "fail", "double", "fail", "double"]
    outcomes = run_jobs(task, [record(kind, n) for n, kind in enumerate(kinds)])
    first, second, third, fourth, fifth = replies(outcomes)
    assert [value_of(each) for each in (first, third, fifth)] == [0, 4, 8]
    for reply, number in ((second, 1), (fourth, 3)):
        with pytest.raises(HandlerFailed, match=f"^ValueError: no luck with {number}\n") as caught:
            value_of(reply)
        assert "in fail" in str(caught.value)
        assert "bucketq/worker" not in str(caught.value)


def test_retry_and_give_up_are_reported() -> None:
    with pytest.raises(GiveUp, match="never"):
        run_one(refuse_for_good)
    with pytest.raises(Retry, match="later") as caught:
        run_one(ask_again)
    assert caught.value.delay_s == 7
    with pytest.raises(UnfitPayload, match="cannot be decoded as int"):
        run_one(double_soon, "four")
    assert run_one(bytes_of, "ü") == "ü".encode()


def test_a_handler_that_takes_too_long_has_failed() -> None:
    async def wait() -> None:
        await asyncio.sleep(60)

    with pytest.raises(HandlerFailed, match=r"^it took longer than 0\.05 s, and was cancelled$"):
        run_one(wait, timeout_s=0.05)


def test_a_stubborn_thread_is_not_waited_for() -> None:
    def sleep() -> None:
        time.sleep(600)  # Longer than a test may take.

    with pytest.raises(HandlerFailed, match="it took longer than"):
        run_one(sleep, timeout_s=0.05)


def test_a_handler_that_returns_when_it_is_cancelled_has_succeeded() -> None:
    def look(context: Context) -> str:
        while not context.cancelled:
            time.sleep(0.01)
        return "just in time"

    assert run_one(look, timeout_s=0.05) == "just in time"


def test_a_handler_that_cancels_itself_has_failed() -> None:
    async def quit_it() -> None:
        raise asyncio.CancelledError

    with pytest.raises(HandlerFailed, match="the handler cancelled itself"):
        run_one(quit_it)


def test_a_handler_that_exits_fails_its_job_alone() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(HandlerFailed, match=r"HandlerExit.*SystemExit\(3\)"):
        run_one(leave)


def test_concurrency_limits_how_many_handlers_run_at_once() -> None:
    inside: list[int] = []

    async def enter() -> int:
        inside.append(1)
        await asyncio.sleep(0.01)
        most = len(inside)
        inside.pop()
        return most

    task = settings(bind("x", enter), concurrency=3)
    found = [value_of(reply) for reply in replies(run_jobs(task, [record("x")] * 12))]
    assert len(found) == 12
    assert max(found) == 3


def test_a_task_over_its_budget_starts_no_more_jobs() -> None:
    async def wait() -> None:
        await asyncio.sleep(0.01)

    task = settings(bind("x", wait), concurrency=2, budget_s=0.0)
    outcomes = run_jobs(task, [record("x")] * 5)
    assert [outcome.reply is not None for outcome in outcomes] == [True, True, False, False, False]


NOTED: ContextVar[str] = ContextVar("NOTED", default="nothing")


async def thread_of_a_loop() -> int:
    return threading.get_ident()


def look_around(payload: Any, context: Context) -> list[Any]:
    seen, _ = NOTED.get(), NOTED.set("something")
    context.push("more", payload)
    streamed = b"".join(context.job.open_payload()).decode()
    return [threading.get_ident(), asyncio.run(thread_of_a_loop()), seen, streamed]


def test_plain_handlers_that_run_one_at_a_time_are_called_in_the_thread_of_the_task() -> None:
    here = threading.get_ident()

    def leave() -> None:
        raise SystemExit(3)

    def quit_it() -> None:
        raise asyncio.CancelledError

    handlers = (
        bind("look", look_around),
        bind("fail", fail),
        bind("leave", leave),
        bind("quit", quit_it),
    )
    kinds = ("look", "fail", "leave", "quit", "look")
    found = replies(
        run_jobs(settings(*handlers, concurrency=1), [record(kind, 7) for kind in kinds])
    )
    assert [reply.kind for reply in found] == ["done", "failed", "failed", "failed", "done"]
    # What a handler has set in its context is not seen by the next one.
    assert [value_of(found[n]) for n in (0, 4)] == [[here, here, "nothing", "7"]] * 2
    assert [job.kind for job in found[4].follow_ups] == ["more"]
    assert found[3].text == "the handler cancelled itself"


async def leave_traces(how: str) -> Any:
    task = asyncio.current_task()
    assert task is not None
    if how == "set":
        NOTED.set("something")
    if how == "cancel":
        task.cancel()
        await asyncio.sleep(0)
    if how == "cancel late":
        task.cancel()
    return [id(task), NOTED.get()]


def test_async_handlers_share_a_task_unless_one_has_left_traces_in_it() -> None:
    task = settings(bind("x", leave_traces), concurrency=1)
    how = ("no", "no", "set", "no", "cancel", "no", "cancel late", "no", "no")
    found = replies(run_jobs(task, [record("x", each) for each in how]))
    assert found[4].text == "the handler cancelled itself"
    tasks, noted = zip(*(value_of(found[n]) for n in (0, 1, 2, 3, 5, 6, 7, 8)), strict=True)
    assert noted == ("nothing", "nothing", "something", *["nothing"] * 5)
    assert tasks[0] == tasks[1] == tasks[2]
    assert tasks[3] != tasks[2]
    assert tasks[4] == tasks[5]
    assert tasks[6] == tasks[7]


TOGETHER = threading.Barrier(3)


def meet(payload: Any, context: Context) -> list[Any]:
    TOGETHER.wait(20)
    return look_around(payload, context)


def test_threads_take_one_job_after_the_other_if_plain_handlers_run_at_once() -> None:
    task = settings(bind("x", meet), concurrency=3)
    found = [value_of(reply) for reply in replies(run_jobs(task, [record("x", 7)] * 12))]
    assert len(found) == 12
    assert {(own == inner, *seen) for own, inner, *seen in found} == {(True, "nothing", "7")}
    threads = {own for own, *_ in found}
    assert len(threads) == 3
    assert threading.get_ident() not in threads


def test_plain_handlers_with_a_timeout_run_in_threads_also_one_at_a_time() -> None:
    here = threading.get_ident()

    def look() -> bool:
        return threading.get_ident() == here

    task = settings(bind("x", look, timeout_s=5.0), concurrency=1)
    assert [value_of(reply) for reply in replies(run_jobs(task, [record("x")]))] == [False]


def test_a_task_over_its_budget_calls_no_more_plain_handlers() -> None:
    for concurrency in (1, 2):
        task = settings(bind("x", lambda: None), concurrency=concurrency, budget_s=0.0)
        outcomes = run_jobs(task, [record("x")] * 4)
        begun = [outcome.reply is not None for outcome in outcomes]
        assert begun == [True] * concurrency + [False] * (4 - concurrency)


def test_outcomes_say_how_long_handlers_kept_a_task_busy() -> None:
    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)

    task = settings(bind("x", wait), concurrency=1)
    first, last = run_jobs(task, [record("x", 0.05), record("x", 0.1)])
    assert 0.05 <= first.ended_s < last.ended_s
    assert last.ended_s >= 0.15


def test_a_job_whose_own_process_dies_fails_alone() -> None:
    task = settings(
        bind("die", process_handlers.die, run_in="process"),
        bind("echo", process_handlers.echo, run_in="process"),
    )
    died, echoed = replies(run_jobs(task, [record("die", "exit"), record("echo", 5)]))
    assert value_of(echoed) == 5
    with pytest.raises(HandlerFailed, match="the process that ran the handler"):
        value_of(died)


def test_a_job_that_ends_its_process_is_found_if_each_is_isolated() -> None:
    def leave(how: str) -> str:
        if how == "exit":
            os._exit(7)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return how

    task = settings(bind("x", leave), isolation="isolated")
    outcomes = run_jobs(task, [record("x", how) for how in ("stay", "exit", "kill", "go on")])
    assert [reply.text or value_of(reply) for reply in replies(outcomes)] == [
        "stay",
        "the process that ran the handler ended with exit code 7",
        "the process that ran the handler was ended by SIGKILL",
        "go on",
    ]


def row(*records: JobRecord) -> bytes:
    return msgspec.json.encode(records)


def outcomes_of(body: bytes) -> list[HandlerOutcome]:
    return msgspec.json.decode(body, type=list[HandlerOutcome])


def test_outcomes_come_back_in_the_rows_of_their_jobs() -> None:
    task = settings(bind("double", double_soon))
    double = partial(record, "double")
    rows = [row(double(4)), row(double(7), double(8))]
    found = [replies(outcomes_of(body)) for body in run_rows(task, iter(rows))]
    assert [[*map(value_of, each)] for each in found] == [[8], [14, 16]]
    assert list(run_rows(task, [])) == []


def test_outcomes_have_the_numbers_of_their_rows() -> None:
    task = settings(bind("double", double_soon))
    names = ["n", "body"]
    double = partial(record, "double")
    some = pa.record_batch([pa.array([4, 2], pa.int32()), [row(double(4)), row(double(2))]], names)
    more = pa.record_batch([pa.array([7], pa.int32()), [row(double(7), double(8))]], names)
    [batch] = run_batches(task, [some, more])
    assert batch.column(0).to_pylist() == [4, 2, 7]
    found = [replies(outcomes_of(body)) for body in batch.column(1).to_pylist()]
    assert [[*map(value_of, each)] for each in found] == [[8], [4], [14, 16]]
    assert [batch.num_rows for batch in run_batches(task, [])] == [0]


def test_modules_are_not_looked_at_when_garbage_is_collected_after_each_task() -> None:
    freeze_modules.cache_clear()
    gc.unfreeze()
    try:
        for _ in range(2):
            list(run_rows(settings(bind("double", double_soon)), [row(record("double", 4))]))
        assert gc.get_freeze_count() > len(gc.get_objects())
    finally:
        gc.unfreeze()


def test_an_executor_that_cannot_load_the_handlers_runs_nothing() -> None:
    broken = TaskSettings(PickledHandlers(b"\x80\x04cno_such_module\nwork\n.", ()), 1, 1.0)
    [outcome] = run_jobs(broken, [record("x")])
    assert outcome.reply is None
    assert "No module named 'no_such_module'" in outcome.load_error
    [body] = run_rows(broken, [b"[null]"])
    [outcome] = outcomes_of(body)
    assert "no_such_module" in outcome.load_error
    assert list(run_rows(settings(bind("x", fail)), [b"[null]"])) == [b"[{}]"]


def leave_a_fork(wish: list[str]) -> str:
    """Fork, let the fork live on with all that this process has open, and end as is wished."""
    path, end = wish
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    Path(path).write_text(str(child))
    if end == "dies":
        os._exit(7)
    return "fine"


@pytest.mark.parametrize("end", ["dies", "returns"])
def test_a_process_that_a_job_has_started_delays_nothing(tmp_path: Path, end: str) -> None:
    mark = tmp_path / "mark"
    task = settings(bind("x", leave_a_fork), isolation="isolated")
    try:
        [reply] = replies(run_jobs(task, [record("x", [str(mark), end])]))
    finally:
        os.kill(int(mark.read_text()), signal.SIGKILL)
    if end == "returns":
        assert value_of(reply) == "fine"
    else:
        with pytest.raises(HandlerFailed, match="exit code 7"):
            value_of(reply)

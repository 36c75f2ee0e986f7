"""What a launcher needs of a worker: to change its options, and to read its state."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

import bucketq
from bucketq.errors import ClosedError, InvalidRequestError
from bucketq.queue.queue import Queue
from bucketq.worker.forced_exit import ForcedExit


def test_what_is_configured_overrides_what_the_worker_was_made_with() -> None:
    worker = bucketq.Worker("memory://one", concurrency=3, drain_s=5, worker="ada")
    worker.configure("memory://two", drain_s=timedelta(minutes=1))
    assert (worker.url, worker.concurrency, worker.drain_s) == ("memory://two", 3, 60.0)
    worker.configure(concurrency=7, worker="grace")
    assert (worker.url, worker.concurrency, worker.name) == ("memory://two", 7, "grace")


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"concurrency": 10**6}, {"drain_s": -1}])
def test_what_makes_no_sense_is_refused_and_changes_nothing(wrong: dict[str, int]) -> None:
    worker = bucketq.Worker(concurrency=3, drain_s=5)
    with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
        worker.configure(**wrong)  # type: ignore[arg-type]  # that is the point
    assert (worker.concurrency, worker.drain_s) == (3, 5)


async def test_a_worker_that_runs_can_count_the_jobs_of_its_queue(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    worker = bucketq.Worker(url, mode="direct")
    seen: list[int] = []

    @worker.handler("look")
    async def look() -> None:
        assert worker.is_ready
        seen.append((await worker.stats()).total("running"))

    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("look", None)
    with pytest.raises(ClosedError):
        await worker.stats()
    assert not worker.is_ready
    await worker.run(burst=True)
    assert seen == [1]
    with pytest.raises(ClosedError):
        await worker.stats()


async def test_reading_the_queue_raises_when_the_worker_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stats(_: object) -> None:
        if looks:  # Before that it is the worker itself that looks.
            worker.stop()
        await asyncio.Event().wait()

    monkeypatch.setattr(Queue, "stats", stats)
    worker = bucketq.Worker((tmp_path / "queue.json").as_uri(), mode="direct")
    looks: list[asyncio.Task[bucketq.Stats]] = []

    @worker.handler("look")
    async def look() -> None:
        looks.append(asyncio.create_task(worker.stats()))

    async with bucketq.connect((tmp_path / "queue.json").as_uri(), mode="direct") as queue:
        await queue.push("look", None)
    await worker.run()
    with pytest.raises(ClosedError, match="has ended"):
        await asyncio.wait_for(looks[0], 10)


async def test_a_burst_reports_the_jobs_that_are_left_for_later(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    worker = bucketq.Worker(url, mode="direct")

    @worker.handler("now")
    async def now() -> None:
        raise bucketq.Retry(delay_s=3600)

    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("now", None)
        await queue.push("now", None, delay_s=3600)
    await worker.run(burst=True)
    left = worker.counters.left
    assert left is not None
    assert left.counts == {"now": {"queued": 2}}


async def test_a_burst_that_is_stopped_does_not_report_what_is_left(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    worker = bucketq.Worker(url, mode="direct")

    @worker.handler("now")
    async def now() -> None:
        worker.stop()

    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("now", None)
    await worker.run(burst=True)
    assert worker.counters.count("done") == 1
    assert worker.counters.left is None


def test_a_worker_runs_in_a_thread_and_leaves_signals_and_the_process_alone(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    worker = bucketq.Worker(url, mode="direct")
    before = signal.getsignal(signal.SIGTERM)
    found = list[object]()

    @worker.handler("look")
    def look() -> None:
        found.append(signal.getsignal(signal.SIGTERM))
        worker.stop()

    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("look", None)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(worker.run_sync).result(timeout=30)
        assert thread.submit(ForcedExit).result().is_called_off
    assert found == [before]


async def test_signals_that_were_ignored_stay_ignored_and_others_are_restored() -> None:
    worker = bucketq.Worker()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        with worker.stopped_by_signals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not terminate
        assert signal.getsignal(signal.SIGTERM) is terminate
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "echo_s", "hurries"),
    [
        (signal.SIGTERM, 60.0, [False]),
        (signal.SIGTERM, 0.0, [False, True]),
        (signal.SIGINT, 60.0, [False, True]),
    ],
)
async def test_a_sigterm_right_after_another_is_the_same_one(
    number: signal.Signals, echo_s: float, hurries: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``timeout`` of GNU sends it to a process, and to the group that it is in."""
    heard: list[bool] = []
    worker = bucketq.Worker()
    monkeypatch.setattr(worker, "_request_stop", lambda *, hurry, **_: heard.append(hurry))
    monkeypatch.setattr("bucketq.worker.signals._ECHO_S", echo_s)
    monkeypatch.setattr("bucketq.worker.signals.watched", lambda *_: nullcontext())
    with worker.stopped_by_signals():
        for _ in range(2):
            os.kill(os.getpid(), number)
    assert heard == hurries

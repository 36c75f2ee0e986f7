"""Schedules that a worker declares when it starts."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import bucketq
from bucketq import InvalidRequestError, Worker
from bucketq.errors import AccessDeniedError
from bucketq.queue.schedule_verbs import ScheduleVerbs


def url_of(folder: Path) -> str:
    return (folder / "queue.json").as_uri()


async def names(url: str) -> list[str]:
    async with bucketq.connect(url, mode="direct") as queue:
        return [schedule.name for schedule in await queue.schedules()]


async def test_a_worker_declares_its_schedules_and_fires_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = url_of(tmp_path)
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.schedule("old", "other", 1, every_s=3600)
    worker = Worker(url, mode="direct")
    seen: list[object] = []

    @worker.schedule("tick", every_s=1, payload={"n": 1})
    async def tick(payload: dict[str, int]) -> None:
        seen.append(payload)
        worker.stop()

    with caplog.at_level(logging.INFO, "bucketq.worker"):
        await asyncio.wait_for(worker.run(), 60)
    assert seen[0] == {"n": 1}
    assert await names(url) == ["old", "tick"]
    assert "schedule tick: created" in caplog.messages
    [reported] = [line for line in caplog.messages if "does not declare" in line]
    assert "old" in reported
    caplog.clear()
    with caplog.at_level(logging.INFO, "bucketq.worker"):
        await asyncio.wait_for(worker.run(burst=True), 60)
    assert not [line for line in caplog.messages if line.startswith("schedule tick")]


async def test_a_worker_without_the_right_logs_that_and_works_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deny(*_: object, **__: object) -> None:
        raise AccessDeniedError("token 1 lacks the right 'admin'")

    monkeypatch.setattr(ScheduleVerbs, "schedule", deny)
    monkeypatch.setattr(ScheduleVerbs, "schedules", deny)
    url = url_of(tmp_path)
    worker = Worker(url, mode="direct")
    worker.schedule("tick", "mail", every_s=60)
    done: list[object] = []

    @worker.handler("mail")
    def note(payload: object) -> None:
        done.append(payload)

    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("mail", 5)
    with caplog.at_level(logging.WARNING, "bucketq.worker"):
        await asyncio.wait_for(worker.run(burst=True), 60)
    assert done == [5]
    assert any("schedule tick was not declared" in line for line in caplog.messages)


def test_a_schedule_names_its_handler_or_becomes_one() -> None:
    worker = Worker()

    @worker.schedule("nightly", cron="0 3 * * *")
    def nightly() -> None: ...

    @worker.schedule("hourly", "report", every_s=3600)
    @worker.handler("report", timeout_s=5)
    def report() -> None: ...

    assert worker.handlers["nightly"].function is nightly
    assert worker.handlers["report"].timeout_s == 5
    assert [(each.name, each.kind) for each in worker.schedules.values()] == [
        ("nightly", "nightly"),
        ("hourly", "report"),
    ]


def test_a_declaration_that_makes_no_sense_is_refused_at_once() -> None:
    worker = Worker()
    with pytest.raises(InvalidRequestError, match="cron or every_s"):
        worker.schedule("tick")
    with pytest.raises(InvalidRequestError, match="kind"):
        worker.schedule("tick", "bad kind", every_s=60)
    worker.schedule("tick", every_s=60)
    with pytest.raises(InvalidRequestError, match="declared already"):
        worker.schedule("tick", every_s=60)

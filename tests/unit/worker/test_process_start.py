"""A job may be lost, or take too long to begin, while the process for its handler starts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from bucketq import Context, Job
from bucketq.model.records import JobRecord
from bucketq.worker.handlers import bind
from bucketq.worker.runners.processes import ProcessRunner


def touch(path: str) -> str:
    Path(path).touch()
    return "touched"


def job_of(payload: object) -> Job[Any]:
    record = JobRecord(
        id="job",
        kind="touch",
        status="running",
        seq=1,
        payload=Raw(msgspec.json.encode(payload)),
        pushed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return Job(record, Any)


async def test_a_handler_that_is_to_stop_while_its_process_starts_is_never_run(
    tmp_path: Path,
) -> None:
    handler = bind("touch", touch, run_in="process")
    runner = ProcessRunner({"touch": handler})
    begun: list[str] = []
    try:
        mark = tmp_path / "mark"
        context = Context(job_of(str(mark)))
        running = asyncio.create_task(runner.run(handler, context, lambda: begun.append("once")))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not begun
        assert not mark.exists()
        # The process is there for the next.
        context = Context(job_of(str(mark)))
        assert await runner.run(handler, context, lambda: begun.append("twice")) == "touched"
        assert mark.exists()
    finally:
        await runner.close()

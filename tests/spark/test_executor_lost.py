"""Executors in processes of their own, one of them killed while it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bucketq
from bucketq import Job

ROOT = Path(__file__).resolve().parents[2]
ROWS, PARTS = 400, 4


@pytest.mark.timeout(240)
def test_an_executor_that_is_killed_while_it_writes_loses_and_doubles_nothing(
    spark_environ: dict[str, str], tmp_path: Path
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_write", url, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | spark_environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    killed = (tmp_path / "killed").read_text().split()
    assert len(killed) == 1, "no executor was killed, so this shows nothing"
    with bucketq.connect_sync(url, mode="direct", create=False) as queue:
        found: list[int] = [Job(record, dict).payload["id"] for record in queue.snapshot().jobs]
    assert sorted(found) == list(range(ROWS))
    assert not list((tmp_path / "queue").glob("staged/*.jsonl")), "staged rows are left"

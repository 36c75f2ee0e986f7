"""Which files count as source, and how a child that ignores signals is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from bucketq.cli.reloader import Reloader, source_marks

DEAF = """
import pathlib, signal, time

told = 0


def hear(*_):
    global told
    told += 1
    pathlib.Path("told").write_text(str(told))


signal.signal(signal.SIGTERM, hear)
pathlib.Path("begun").touch()
while True:
    time.sleep(0.05)
"""


def test_installed_built_and_hidden_files_are_not_source(tmp_path: Path) -> None:
    for name in (
        "tasks.py",
        "shop/inner/tasks.py",
        "notes.txt",
        ".hidden/tasks.py",
        "__pycache__/tasks.py",
        "node_modules/tool.py",
        ".venv/lib/tool.py",
        "env/lib/tool.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    found = {path.relative_to(tmp_path).as_posix() for path in source_marks(tmp_path)}
    assert found == {"tasks.py", "shop/inner/tasks.py"}


async def test_a_child_that_ignores_two_signals_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bucketq.cli.reloader._EXIT_S", 0.3)
    (tmp_path / "deaf.py").write_text(DEAF)
    reloader = Reloader([sys.executable, "deaf.py"], tmp_path, quiet=False)
    running = asyncio.get_running_loop().create_task(reloader.run())
    try:
        await _appears(tmp_path / "begun")
        (tmp_path / "begun").unlink()
        (tmp_path / "new.py").touch()
        await _appears(tmp_path / "begun")  # By the next child.
        assert (tmp_path / "told").read_text() == "2"
        assert "new.py changed: restarting" in capfd.readouterr().err
        # It hears signals like those of a terminal, the third of which kills.
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
        assert await running == 130
    finally:
        running.cancel()


async def test_signals_at_the_same_moment_count_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deaf.py").write_text(DEAF)
    reloader = Reloader([sys.executable, "deaf.py"], tmp_path, quiet=True)
    running = asyncio.get_running_loop().create_task(reloader.run())
    try:
        await _appears(tmp_path / "begun")
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        await _appears(tmp_path / "told")
        await asyncio.sleep(0.2)
        assert (tmp_path / "told").read_text() == "1"
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
        assert await running == 130
    finally:
        running.cancel()


async def _appears(path: Path) -> None:
    async with asyncio.timeout(30):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.02)

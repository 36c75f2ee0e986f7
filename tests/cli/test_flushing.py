"""What a command that keeps running has printed can be read at once, from a file and from a pipe.

The children run without ``PYTHONUNBUFFERED``, which would hide a missing flush.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cli.console import Console
from tests.environ import child_environ

PATIENCE_S = 120.0

PRINTS = """
import pathlib, time
import bucketq

worker = bucketq.Worker(concurrency=1, mode="direct")


@worker.handler("loud", run_in="thread")
def loud(payload: object) -> None:
    print("printed")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def _no_help_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")


def read_until(path: Path, word: str) -> str:
    until = time.monotonic() + PATIENCE_S
    while word not in (text := path.read_text("utf-8")):
        assert time.monotonic() < until, f"{word!r} was not written: {text!r}"
        time.sleep(0.02)
    return text


def test_children_run_without_variables_that_change_how_python_behaves() -> None:
    environ = child_environ(BUCKETQ_URL="memory://")
    assert "PYTHONUNBUFFERED" not in environ
    assert environ["BUCKETQ_URL"] == "memory://"


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "json"])
def test_the_address_of_a_broker_reaches_a_file_while_it_serves(
    console: Console, words: tuple[str, ...]
) -> None:
    path = console.folder / "stdout"
    with path.open("wb") as stdout:
        process = console.start("serve", "URL", *words, stdout=stdout)
    text = read_until(path, "\n")
    assert process.poll() is None
    assert ('{"address":"' if words else "serving ") in text


def test_what_a_handler_prints_reaches_a_file_while_it_runs(console: Console) -> None:
    (console.folder / "tasks.py").write_text(PRINTS)
    console.ok("push", "URL", "loud", "1")
    path = console.folder / "stdout"
    with path.open("wb") as stdout:
        process = console.start("work", "tasks", "--url", "URL", "--burst", stdout=stdout)
    read_until(path, "printed\n")
    assert process.poll() is None
    (console.folder / "go").touch()
    read_until(path, "1 attempt: 1 done\n")

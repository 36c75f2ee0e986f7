"""``bucketq tail`` and ``stats --watch``: commands that run until they are stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bucketq
from tests.cli.console import TIMEOUT_S, Console, finish
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.timeout(TIMEOUT_S)


def wait_until(is_so: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Wait until something holds, or the process has ended."""
    until = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < until
        assert process.poll() is None, finish(process)
        time.sleep(0.02)


def start_tail(console: Console, path: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start `tail`, and wait until it follows."""
    with path.open("wb") as stdout:
        process = console.start("tail", "URL", *words, stdout=stdout)
    assert process.stderr is not None
    assert b"events after version" in process.stderr.readline()
    return process


def events_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if "\n" in line]


def test_a_killed_broker_loses_and_doubles_no_event(console: Console) -> None:
    console.ok("create", "URL", "history_retention_s=3600")
    brokers = []
    for _ in range(2):
        broker = console.start("serve", "URL", "--json")
        assert broker.stdout is not None
        assert broker.stdout.readline()
        brokers.append(broker)
    path = console.folder / "events"
    tail = start_tail(console, path, "--json", "--kind", "mail")
    with bucketq.connect_sync(console.url, timeout_s=60, worker="w") as queue:
        for number in range(40):
            if number == 20:
                brokers[0].kill()
            queue.push("mail", number, id=f"mail-{number}")
            queue.push("other", number)
        (job,) = queue.claim("mail")
        queue.complete(job)
        wait_until(lambda: '"completed"' in path.read_text(), tail)
    tail.send_signal(signal.SIGINT)
    assert tail.wait(TIMEOUT_S) == 130
    assert tail.stderr is not None
    said = tail.stderr.read().decode()
    found = events_in(path)
    pushed = [event["job"] for event in found if event["event"] == "pushed"]
    assert pushed == [f"mail-{number}" for number in range(40)]
    assert [event["event"] for event in found[40:]] == ["claimed", "completed"]
    assert {event["kind"] for event in found} == {"mail"}
    versions = [event["version"] for event in found]
    assert versions == sorted(versions)
    assert "Traceback" not in said
    continued = console.spawn("history", "URL", "--since", re.findall(r"--since (\d+)", said)[0])
    assert "complete" not in continued.out, "all events were printed"


def test_a_closed_pipe_ends_it_although_nothing_happens(console: Console) -> None:
    console.ok("create", "URL", "history_retention_s=3600")
    console.ok("push", "URL", "mail", "1", "--id", "first")
    process = console.start("tail", "URL", "--since", "1h")
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [process.stdout.readline().decode().split() for _ in range(2)]
    assert lines[0] == ["AT", "EVENT", "KIND", "JOB", "ABOUT"]
    assert lines[1][1:4] == ["pushed", "mail", "first"]
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 141
    assert b"Traceback" not in process.stderr.read()


def test_without_a_history_it_says_how_to_switch_it_on(console: Console) -> None:
    console.ok("create", "URL")
    ran = console.run("tail", "URL")
    assert (ran.code, "history_retention_s" in ran.err) == (4, True)
    assert len(ran.err.splitlines()) == 1


def test_counts_are_lines_in_a_pipe_until_it_is_closed(console: Console) -> None:
    console.ok("push", "URL", "mail", "1")
    process = console.start("stats", "URL", "--watch", "--every", "0.1s", "--json")
    assert process.stdout is not None
    found = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [each["totals"]["queued"] for each in found] == [1, 1]
    assert found[0]["at"] < found[1]["at"]
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 141


def test_counts_are_redrawn_on_a_terminal_until_ctrl_c(console: Console) -> None:
    console.ok("push", "URL", "mail", "1")
    with Terminal(console, "stats", "URL", "--watch", "--every", "0.1s") as terminal:
        place = terminal.until(r"(?s)\x1b\[H\x1b\[J.*?all +1 +0")
        console.ok("push", "URL", "mail", "1")
        terminal.until(r"(?s)\x1b\[H\x1b\[J.*?all +2 +0", after=place)
        terminal.type(b"\x03")
        assert terminal.finish() == 130
    assert "Traceback" not in terminal.text


def test_counts_without_a_terminal_are_one_line_each(console: Console) -> None:
    console.ok("push", "URL", "mail", "1")
    reading, writing = os.pipe()
    process = console.start("stats", "URL", "--watch", "--every", "0.1s", stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        assert "queued 1  running 0  done 0  dead 0  oldest" in next(lines)
        assert "queued 1" in next(lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130


@pytest.mark.parametrize("every", ["0", "0.01s", "often"])
def test_an_interval_that_is_too_short_is_refused(console: Console, every: str) -> None:
    console.ok("create", "URL")
    ran = console.run("stats", "URL", "--watch", "--every", every)
    assert (ran.code, "--every" in ran.err) == (2, True)

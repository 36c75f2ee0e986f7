"""``bucketq top`` in a terminal."""

from __future__ import annotations

import signal

import pytest

from tests.cli.console import TIMEOUT_S, Console
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.timeout(TIMEOUT_S)
LEFT = "\x1b[?1049l"
"""What leaves the alternate screen."""


def cells(*texts: str) -> str:
    """A pattern for cells of a row, which may be drawn in colours."""
    return r"(?:\x1b\[[0-9;]*m|[ ])+".join(texts)


def fill(console: Console) -> None:
    """Push jobs of two kinds, one of which is dead."""
    for kind in ("email", "index"):
        console.ok("push", "URL", kind, "1", "--id", f"{kind}-1")
    job = console.ok("claim", "URL", "--kind", "email", "--json").json
    console.ok("fail", "URL", job["id"], job["lease"], "--no-retry")


def test_keys_operate_the_queue_and_q_leaves_the_terminal_as_it_was(console: Console) -> None:
    fill(console)
    with Terminal(console, "top", "URL", "--every", "0.2s") as terminal:
        before = terminal.modes()
        place = terminal.until(cells("email", "0", "0", "0", "1"))
        assert terminal.modes() != before
        terminal.type(b"p")
        place = terminal.until(r"stop handing out jobs: email of \S+\? \[y/N\]", after=place)
        terminal.type(b"y")
        place = terminal.until(r"email is paused", after=place)
        terminal.type(b"ry")
        place = terminal.until(r"1 dead job of email queued again", after=place)
        place = terminal.until(
            cells("email", "1", "0", "0", "0", r"\d\S*", "0", "paused"), after=place
        )
        terminal.type(b"?")
        place = terminal.until(r"Any key goes back", after=place)
        terminal.type(b"x\x1b[B\r")
        place = terminal.until(r"workers with a handler: 0", after=place)
        terminal.type(b"q")
        assert terminal.finish() == 0
        assert terminal.modes() == before
    assert LEFT in terminal.text[place:]
    assert "Traceback" not in terminal.text
    found = console.ok("stats", "URL", "--json").json
    assert (found["paused_kinds"], found["totals"]["dead"]) == (["email"], 0)


@pytest.mark.parametrize(("how", "code"), [("ctrl-c", 130), ("sigterm", 0)])
def test_the_terminal_is_put_back_however_it_ends(console: Console, how: str, code: int) -> None:
    fill(console)
    with Terminal(console, "top", "URL", "--every", "0.2s") as terminal:
        before = terminal.modes()
        terminal.until("email")
        if how == "ctrl-c":
            terminal.type(b"\x1a\x03")  # Ctrl-Z does nothing.
        else:
            terminal.process.send_signal(signal.SIGTERM)
        assert terminal.finish() == code
        assert terminal.modes() == before
    assert LEFT in terminal.text
    assert "Traceback" not in terminal.text


def test_a_missing_queue_and_a_pipe_are_refused(console: Console) -> None:
    with Terminal(console, "top", "URL") as terminal:
        assert terminal.finish() == 3
    assert "no queue at" in terminal.text
    assert LEFT not in terminal.text
    assert not console.path.exists()
    console.ok("create", "URL")
    ran = console.run("top", "URL")
    assert (ran.code, "stats --watch" in ran.err) == (2, True)

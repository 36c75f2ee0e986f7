"""Ctrl-C at every stage of a command."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.console import TIMEOUT_S, Console, finish
from tests.environ import SPILL_BYTES, child_environ


def wait_until_it_reads(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process is asleep in a read of its stdin."""
    call = Path(f"/proc/{process.pid}/syscall")
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if call.read_text().startswith(("0 0x0 ", "63 0x0 ")):  # read(2), on x86 and on ARM
            return
        time.sleep(0.02)


def test_ctrl_c_at_a_confirmation_exits_at_once_and_changes_nothing(console: Console) -> None:
    console.ok("create", "URL")
    own, others = pty.openpty()
    process = console.start("delete", "URL", stdin=others)
    assert process.stderr is not None
    asked = b""
    while b"[y/N]" not in asked:
        asked += os.read(process.stderr.fileno(), 1000)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    ran = finish(process)
    os.close(own)
    os.close(others)
    assert ran.code == 130
    assert ran.err == "\nbucketq: stopped; nothing was done\n"
    assert console.path.exists()


@pytest.mark.parametrize("words", [("push", "URL", "k"), ("restore", "URL", "-")])
def test_ctrl_c_ends_the_reading_of_stdin_at_once(console: Console, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    process = console.start(*words, stdin=reading)
    wait_until_it_reads(process)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    ran = finish(process)
    os.close(reading)
    os.close(writing)
    assert ran.code == 130
    assert "stopped" in ran.err
    assert "Traceback" not in ran.err
    assert not console.path.exists()


@pytest.mark.skipif(bool(SPILL_BYTES), reason="what makes queues deep imports modules itself")
@pytest.mark.parametrize(
    "module",
    [
        "bucketq.cli.app",
        "typer._click.core",
        "bucketq.cli.commands.monitoring.stats",
        "msgspec",
        "asyncio",
        "bucketq.client.connect",
    ],
)
def test_ctrl_c_during_start_up_prints_no_traceback(console: Console, module: str) -> None:
    """The process sends itself the signal when it is about to import a certain module."""
    script = str(Path(sys.executable).with_name("bucketq"))
    program = (
        "import os, runpy, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        f"runpy.run_path({script!r}, run_name='__main__')\n"
    )
    ran = finish(console.launch(sys.executable, "-c", program, "stats", console.url))
    assert (ran.code, ran.out) == (130, "")
    # Once the command runs, it says what became of it.
    is_running = module == "bucketq.client.connect"
    assert ran.err == ("bucketq: stopped; running it again is safe\n" if is_running else "")


@pytest.mark.parametrize("place", ["bucketq.cli.app", "typer.main", "bucketq.cli.commands"])
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(place: str) -> None:
    program = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {place!r}:\n"
        "            raise KeyboardInterrupt\n"
        "from bucketq.cli import main\n"
        "sys.meta_path.insert(0, Stop())\n"
        "main()"
    )
    check_that_it_stops(program)


def test_ctrl_c_while_the_commands_are_built_prints_no_traceback() -> None:
    program = (
        "import typer.main\n"
        "def stop(*_, **__):\n    raise KeyboardInterrupt\n"
        "typer.main.get_command = stop\n"
        "from bucketq.cli import main\n"
        "main()"
    )
    check_that_it_stops(program)


def check_that_it_stops(program: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        env=child_environ(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")

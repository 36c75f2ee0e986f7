"""The console of these tests leaves no process behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.cli.console import TIMEOUT_S, Console
from tests.environ import ROOT

PARENT = """
import sys, time
from pathlib import Path
from tests.cli.console import Console

process = Console(Path(sys.argv[1])).start("serve", "URL", "--json")
print(process.pid, process.stdout.readline(), flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_processes_of_a_test_are_killed_when_it_ends(console: Console) -> None:
    one = console.start("serve", "URL", "--json")
    assert one.stdout is not None
    assert one.stdout.readline()
    family = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input()"
    two = console.launch(sys.executable, "-c", family, stdin=subprocess.PIPE)
    assert two.stdout is not None
    grandchild = int(two.stdout.readline())
    console.close()
    assert (one.returncode, two.returncode) == (-9, -9)
    until = time.monotonic() + TIMEOUT_S
    while is_running(grandchild):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_processes_of_a_test_end_if_the_test_run_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as parent:
        try:
            assert parent.stdout is not None
            broker = int(parent.stdout.readline().split()[0])
            assert is_running(broker)
        finally:
            parent.kill()
    until = time.monotonic() + TIMEOUT_S
    while is_running(broker):
        assert time.monotonic() < until
        time.sleep(0.02)

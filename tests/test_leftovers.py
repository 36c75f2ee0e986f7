"""A test that fails leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.environ import ROOT

ORPHANS = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=-3, stderr=-3).pid)"
FAILS = """
import subprocess, sys
from pathlib import Path

def test_it_starts_a_process_and_fails():
    command = [sys.executable, "-c", Path("orphans.py").read_text()]
    started = subprocess.run(command, capture_output=True, start_new_session=True, check=True)
    Path("pid").write_bytes(started.stdout)
    raise AssertionError
"""


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who was started by whom")
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_a_failing_test_leaves_no_process_behind(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "orphans.py").write_text(ORPHANS)
    (tmp_path / "test_it.py").write_text(FAILS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "1 failed" in ran.stdout, ran.stdout + ran.stderr
    pid, until_s = int((tmp_path / "pid").read_text()), time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < until_s, "the process that the test started is still there"
        time.sleep(0.02)

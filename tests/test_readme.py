"""The README is true and short: its code runs, and its transcript is what the command prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.environ import ROOT, child_environ
from tests.examples.program import EXAMPLES, Program

README = ROOT / "README.md"
LINES_MAX = 150
TIMEOUT_S = 150

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [
        block[2] for block in _BLOCK.finditer(README.read_text("utf-8")) if block[1] == language
    ]


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= LINES_MAX


def test_the_first_example_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    [program] = blocks("python")
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == blocks("text")[0]


def test_the_failover_prints_lines_like_those_shown_and_loses_nothing(tmp_path: Path) -> None:
    with Program([str(EXAMPLES / "failover.py")], tmp_path / "output.txt") as program:
        assert program.wait() == 0, program.output()
        printed = program.output()
    shown = blocks("text")[1]
    assert shapes(shown) == shapes(printed)
    for text in (shown, printed):
        epochs = [int(epoch) for epoch in re.findall(r"epoch (\d+) at", text)]
        assert sorted(epochs) == epochs
        assert {1, 2} <= set(epochs)


def shapes(transcript: str) -> set[str]:
    """The different lines of a transcript, without numbers and addresses."""
    without_address = re.sub(r"127\.0\.0\.1:\d+|nowhere", "ADDRESS", transcript)
    # "0 lost" and "0 duplicated" stay: they are the point.
    return set(re.sub(r"\d[\d,.]*(?! lost| duplicated)", "N", without_address).split("\n"))

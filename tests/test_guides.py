"""The guides are true: every Python block in them is run.

A block that begins with ``# NAME.py`` is a file of that name, which later blocks of the same guide
can import: a module, or tests where the name begins with ``test_``. Any other block is a program,
and a text block right behind it is what it prints.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.environ import ROOT, child_environ

GUIDES = ("docs/guides/workers.md", "docs/guides/testing.md", "docs/guides/recipes.md")
TIMEOUT_S = 150
ENVIRON = {
    "BUCKETQ_URL": "memory://",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # The guide promises that none is needed.
}

_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\w+)\.py\n")


class Block(NamedTuple):
    """A Python block of a guide."""

    where: str
    text: str
    prints: str | None
    files: dict[str, str]
    """The files that are there before it."""

    @property
    def name(self) -> str | None:
        """The name of its file, if it has one."""
        found = _NAME.match(self.text)
        return found[1] if found else None

    def command(self) -> list[str]:
        """How to run it."""
        if self.name is None:
            return ["-c", self.text]
        if self.name.startswith("test_"):
            return [
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--rootdir=.",
                f"{self.name}.py",
            ]
        return ["-c", f"import {self.name}"]


def blocks() -> list[Block]:
    found = []
    for guide in GUIDES:
        text = (ROOT / guide).read_text("utf-8")
        files: dict[str, str] = {}
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            block = Block(f"{Path(guide).name}-{line}", match[1], match[2], dict(files))
            found.append(block)
            if block.name:
                files[f"{block.name}.py"] = block.text
    return found


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.where)
def test_a_block_of_a_guide_runs_and_prints_what_is_shown(block: Block, tmp_path: Path) -> None:
    files = block.files | ({f"{block.name}.py": block.text} if block.name else {})
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", *block.command()],
        cwd=tmp_path,
        env=child_environ(**ENVIRON),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if block.prints is not None:
        assert ran.stdout == block.prints


def test_every_guide_has_blocks_and_the_guide_on_testing_has_tests() -> None:
    found = blocks()
    for guide in GUIDES:
        assert any(block.where.startswith(Path(guide).name) for block in found), guide
    tests = [block for block in found if (block.name or "").startswith("test_")]
    assert len(tests) >= 5

"""The tutorial, the guides and the concepts are true: every Python block in them is run.

A block that begins with ``# NAME.py`` is a file of that name, which later blocks of the same page
can import: a module, or tests if the name begins with ``test_``. Any other block is a program,
and a text block right after it is what it prints. Each runs in a folder of its own, except those of
a page of the tutorial, whose reader runs one after another in the same folder.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.environ import ROOT, child_environ

RUN_ELSEWHERE = {"docs/guides/spark.md": "tests/spark/test_guide.py"}
NOT_RUN = {"docs/guides/storage.md", "docs/guides/security.md"}
"""They need a bucket and a certificate; ``tests/test_links.py`` checks that their names exist."""
IN_ONE_FOLDER = "docs/start/first-queue.md"
GUIDES = [
    name
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if "```python\n" in path.read_text("utf-8")
    and (name := path.relative_to(ROOT).as_posix()) not in {*RUN_ELSEWHERE, *NOT_RUN}
]
TIMEOUT_S = 150
ENVIRON = {
    "BUCKETQ_URL": "memory://",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # The guide says that none is needed.
}

_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_ANY_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def blocks(guides: list[str]) -> list[Block]:
    found = []
    for guide in guides:
        text = (ROOT / guide).read_text("utf-8")
        files: dict[str, str] = {}
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            block = Block(f"{Path(guide).name}-{line}", match[1], match[2], dict(files))
            found.append(block)
            if block.name:
                files[f"{block.name}.py"] = block.text
    return found


@pytest.mark.parametrize(
    "block",
    blocks([guide for guide in GUIDES if guide != IN_ONE_FOLDER]),
    ids=lambda block: block.where,
)
def test_a_block_of_a_guide_runs_and_prints_what_is_shown(block: Block, tmp_path: Path) -> None:
    check_block(block, tmp_path)


def test_the_blocks_of_the_tutorial_run_one_after_another_in_one_folder(tmp_path: Path) -> None:
    found = blocks([IN_ONE_FOLDER])
    assert len(found) == 3
    for block in found:
        check_block(block, tmp_path)


def check_block(block: Block, folder: Path) -> None:
    files = block.files | ({f"{block.name}.py": block.text} if block.name else {})
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", *block.command()],
        cwd=folder,
        env=child_environ(**ENVIRON),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if block.prints is not None:
        assert ran.stdout == block.prints


def test_the_pages_that_are_run_have_programs_and_tests() -> None:
    assert {Path(guide).parent.name for guide in GUIDES} >= {"start", "guides"}
    tests = [block for block in blocks(GUIDES) if (block.name or "").startswith("test_")]
    assert len(tests) >= 5


def test_the_path_to_a_running_worker_is_as_shown(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "start" / "first-worker.md").read_text("utf-8")
    program, script, log = (block[2] for block in _ANY_BLOCK.finditer(page))
    commands = script.splitlines()
    (tmp_path / "tasks.py").write_text(program, "utf-8")
    shown_url = commands[0].removeprefix("export BUCKETQ_URL=")
    url = (tmp_path / "queue.json").as_uri()
    environ = child_environ(BUCKETQ_URL=url)
    bucketq = [sys.executable, "-m", "bucketq.cli"]
    *pushes, work = [shlex.split(command)[1:] for command in commands[1:]]
    for push in pushes:
        subprocess.run([*bucketq, *push], cwd=tmp_path, env=environ, check=True)
    with subprocess.Popen(
        [*bucketq, *work], cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        try:
            shown = [_plain(line, shown_url) for line in log.splitlines()]
            logged = [_plain(process.stderr.readline().rstrip(), url) for _ in shown]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0
    assert sorted(logged) == sorted(shown)


def _plain(line: str, url: str) -> str:
    """A line of a log without the parts that differ each time."""
    line = line.replace(url, "URL")
    return re.sub(r"^\S+Z |(?<=job=)\w{26}|(?<=took_s=)[\d.e-]+", "", line)

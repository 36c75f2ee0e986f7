"""What type checkers say to users: a wrong payload is an error, in both faces of a queue."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environ import IS_ALL_REQUIRED, ROOT, child_environ

PYRIGHT = ROOT / "build" / "tools" / "node_modules" / "pyright" / "index.js"

GOOD = """
from dataclasses import dataclass
from datetime import timedelta

import bucketq


@dataclass
class Email:
    to: str


def blocking(url: str) -> str:
    with bucketq.connect_sync(url, payload_type=Email) as queue:
        job_id = queue.push("email", Email("ada"), delay_s=timedelta(minutes=1), priority=1)
        queue.push_many([bucketq.JobSpec(kind="email", payload=Email("bob"))])
        for job in queue.claim("email", wait_s=5):
            queue.complete(job, result={"to": job.payload.to})
        return job_id


async def asynchronous(url: str) -> str:
    async with bucketq.connect(url, payload_type=Email) as queue:
        job_id = await queue.push("email", Email("ada"), key="welcome-ada")
        for job in await queue.claim("email"):
            await queue.complete(job, result=job.payload.to)
        return job_id


worker = bucketq.Worker("memory://jobs")


@worker.handler("email", priority=1)
async def send(email: Email, context: bucketq.Context, db: str = worker.state("db")) -> str:
    return f"{email.to} {context.attempt} {db}"


@worker.handler("clean")
def clean() -> int:
    return 5


@worker.handler("whole")
def whole(job: bucketq.Job[Email]) -> str:
    return job.payload.to


@worker.handler("follow")
async def follow(context: bucketq.Context) -> str:
    made: bucketq.JobId = await context.push(send, Email("carol"), delay_s=1)
    context.push(clean, tags={"of": made})
    return await context.push("other", 5)


async def typed_push() -> None:
    async with worker.connect() as queue:
        sent: bucketq.JobId = await send.push(Email("eve"), tags={"a": "b"})
        await clean.push(delay_s=5)
        await whole.push(Email("mallory"))
        await queue.push_many([send.job(Email("trent")), clean.job()])
        print(sent.duplicate, clean() + 1)
"""
MISTAKES = [
    ('queue.push("email", Email("ada"),', 'queue.push("email", 5,', 2),
    ("priority=1", 'priority="high"', 1),
    ("priority=1", "colour=1", 1),
    ("payload=Email(", "payload=int(", 1),
    ("job.payload.to", "job.payload.from_", 2),
    ('send.push(Email("eve")', "send.push(5", 1),
    ('await send.push(Email("eve"),', "await send.push(", 1),
    ("clean.push(delay_s=5)", 'clean.push(Email("ada"))', 1),
    ("clean.push(delay_s=5)", "clean.push(colour=5)", 1),
    ('whole.push(Email("mallory"))', 'whole.push("mallory")', 1),
    ('send.job(Email("trent"))', "send.job(7)", 1),
    ('push(send, Email("carol")', "push(send, 5", 1),
    ('push(send, Email("carol"), delay_s=1)', "push(send, delay_s=1)", 1),
    ("push(clean, tags", "push(clean, colour", 1),
    ("clean() + 1", 'clean() + "1"', 1),
    ("        return job_id\n\n\nasync", "        return 5\n\n\nasync", 1),
]
"""What is put in the place of what, and how many errors that makes."""


def mypy(folder: Path) -> list[str]:
    """The files with errors, once for each error, as mypy finds them."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "."],
        cwd=folder,
        env=child_environ(MYPYPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return [line.split(":")[0] for line in done.stdout.splitlines() if ": error:" in line]


def pyright(folder: Path) -> list[str]:
    """The same for pyright."""
    node = shutil.which("node")
    if node is None or not PYRIGHT.exists():
        if IS_ALL_REQUIRED:
            pytest.fail("pyright is not installed: make typing")
        pytest.skip("pyright is not installed; `make typing` installs it if there is Node.js")
    config = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    done = subprocess.run(
        [node, str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable],
        cwd=folder,
        env=child_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [Path(each["file"]).name for each in found if each["severity"] == "error"]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_code_that_is_right_has_no_errors_and_each_mistake_has(
    checker: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "right.py").write_text(GOOD)
    for number, (right, wrong, _) in enumerate(MISTAKES):
        assert right in GOOD
        (tmp_path / f"wrong{number}.py").write_text(GOOD.replace(right, wrong))
    found = checker(tmp_path)
    assert "right.py" not in found
    for number, (_, wrong, count) in enumerate(MISTAKES):
        assert found.count(f"wrong{number}.py") >= count, wrong


def test_the_blocking_verbs_are_those_of_the_queue() -> None:
    """``make blocking`` was run after the last change to a verb."""
    target = ROOT / "src" / "bucketq" / "client" / "blocking_queue.py"
    script = "import sys, tools.blocking as b; sys.stdout.write(b.generate())"
    text = _run(sys.executable, "-c", script)
    for command in (("check", "--fix-only", "--quiet"), ("format",)):
        ruff = (sys.executable, "-m", "ruff", *command, "--stdin-filename", str(target), "-")
        text = _run(*ruff, sent=text)
    assert text == target.read_text(), "run `make blocking`"


def _run(*command: str, sent: str = "") -> str:
    done = subprocess.run(command, cwd=ROOT, input=sent, capture_output=True, text=True, check=True)
    return done.stdout

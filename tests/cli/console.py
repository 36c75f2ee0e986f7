"""Running commands, in this process and in one of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from bucketq.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 50


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What was printed, as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """What was printed, as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Console:
    """A terminal in a directory of its own, with a queue in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "queue.json"
        self.url = self.path.as_uri()

    def run(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ran:
        """Run a command in this process; `URL` stands for the address of the queue."""
        chosen: dict[str, str | None] = {"BUCKETQ_URL": None, "COLUMNS": "100", **(env or {})}
        result = CliRunner().invoke(app, self.words(*words), input=stdin, env=chosen)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def ok(self, *words: str, stdin: bytes = b"") -> Ran:
        """Run a command that must succeed."""
        ran = self.run(*words, stdin=stdin)
        assert ran.code == 0, ran
        return ran

    def words(self, *words: str) -> list[str]:
        return [self.url if word == "URL" else word for word in words]

    def start(
        self, *words: str, through: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Run the console script in a process of its own, which another program may become."""
        return subprocess.Popen(
            [*through, str(Path(sys.executable).with_name("bucketq")), *self.words(*words)],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | options.pop("env", {}),
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            **options,
        )

    def spawn(self, *words: str, **options: Any) -> Ran:
        """Run the console script, and wait for its end."""
        return finish(self.start(*words, **options))


def finish(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Ran:
    """Wait for the end of a process."""
    out, err = process.communicate(stdin, timeout=TIMEOUT_S)
    return Ran(process.returncode, out.decode(), err.decode())

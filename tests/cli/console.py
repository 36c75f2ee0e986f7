"""Running commands, in this process and in one of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from bucketq.cli.app import app
from bucketq.cli.commands import GROUPS, SUBCOMMANDS
from tests.environ import child_environ
from tests.servers.process import DIES_WITH_PARENT

TIMEOUT_S = 150
"""A command takes a second or two on a quiet machine; this one may be busy."""


COMMANDS: list[str] = [
    command
    for group in GROUPS.values()
    for name in group
    for command in ([f"{name} {sub}" for sub in SUBCOMMANDS.get(name, ())] or [name])
]
"""Every command as it is typed, like ``push`` and ``archive ls``."""


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
        self._started: list[subprocess.Popen[bytes]] = []

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

    def deepen(self, jobs: int = 100) -> None:
        """Create a queue with these jobs and one more, most of them in segments."""
        self.ok("create", "URL", "spill_bytes=2000", "max_format=2")
        lines = (b'{"id":"job-%d","kind":"k","payload":%d}\n' % (n, n) for n in range(jobs))
        self.ok("push", "URL", "--bulk", stdin=b"".join(lines))
        self.ok("push", "URL", "k", "1", "--id", "last")

    def words(self, *words: str) -> list[str]:
        return [self.url if word == "URL" else word for word in words]

    def start(
        self, *words: str, through: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Run the console script in a process of its own, which another program may become.

        It leads a session, so that ``close`` can end its children as well, and it dies with this
        process.
        """
        script = str(Path(sys.executable).with_name("bucketq"))
        return self.launch(*through, script, *self.words(*words), **options)

    def launch(self, *command: str, **options: Any) -> subprocess.Popen[bytes]:
        """Run any program as ``start`` runs the console script."""
        process = subprocess.Popen(
            [*DIES_WITH_PARENT, *command],
            cwd=self.folder,
            env=child_environ(**options.pop("env", {})),
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            start_new_session=True,
            **options,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Kill what is left of the processes that were started."""
        for process in self._started:
            if process.returncode is None:  # Not reaped yet, so the id is still its own.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(TIMEOUT_S)
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                stream.close()

    def spawn(self, *words: str, **options: Any) -> Ran:
        """Run the console script, and wait for its end."""
        return finish(self.start(*words, **options))


def finish(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Ran:
    """Wait for the end of a process."""
    out, err = process.communicate(stdin, timeout=TIMEOUT_S)
    return Ran(process.returncode, out.decode(), err.decode())

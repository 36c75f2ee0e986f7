"""Runs a worker in a child process, and restarts it when its source changes.

For development. It polls the files a few times a second, which needs no further package. A child
that exits, for example because its module cannot be imported, is restarted at the next change.
The child holds one end of a pipe, so that it stops if this process is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import printable

# How often files are polled: prompt to a person, and little work even in a large project.
_POLL_S = 0.25
# How long a child may take to exit before the next signal: SIGTERM, SIGTERM again, SIGKILL.
_EXIT_S = 5.0
_NOT_SOURCE = frozenset({"__pycache__", "node_modules"})
_LIFELINE = "BUCKETQ_LIFELINE_FD"
# A second signal within this time is ignored: ``timeout`` sends two at once.
_ECHO_S = 0.05
_CLEAR_LINE = "\r\x1b[2K"

Marks = dict[Path, tuple[int, int]]
"""The modification time and size of each file."""


class Reloader:
    """Runs one child at a time until a signal stops it."""

    def __init__(self, command: Sequence[str], folder: Path, *, quiet: bool) -> None:
        self._command = list(command)
        self._folder = folder
        self._quiet = quiet
        self._signals = 0
        self._echo_until_s = 0.0
        self._life, self._lifeline = os.pipe()
        """The second end closes when this process ends, even if it is killed."""
        self._signalled = asyncio.Event()

    async def run(self) -> int:
        """Run children until Ctrl-C or SIGTERM, and return the exit code."""
        self._say(f"watching {self._folder} for changes")
        try:
            with self._handling_signals():
                return await self._run_children()
        finally:
            os.close(self._life)
            os.close(self._lifeline)

    async def _run_children(self) -> int:
        while True:
            marks = source_marks(self._folder)
            child = self._start()
            changed = await self._until_change(child, marks)
            if changed is None:
                return await self._end(child)
            self._say(f"{changed} changed: restarting")
            await self._stop(child)
            if self._signals:
                return await self._end(child)

    def _start(self) -> subprocess.Popen[bytes]:
        # Ctrl-C goes to all processes of a terminal. Only this one handles it and passes it on; the
        # child inherits that it is ignored.
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return subprocess.Popen(  # noqa: S603 - it is this program
                self._command, pass_fds=[self._life], env=os.environ | {_LIFELINE: str(self._life)}
            )
        finally:
            signal.signal(signal.SIGINT, heard)

    async def _until_change(self, child: subprocess.Popen[bytes], marks: Marks) -> str | None:
        """Wait for a change and return the file; None if a signal came first."""
        is_reported = False
        while not self._signals:
            await self._pause()
            for path, _ in source_marks(self._folder).items() ^ marks.items():
                return str(path.relative_to(self._folder))
            if child.poll() is not None and not is_reported:
                is_reported = True
                self._say(f"the worker exited with code {child.returncode}; waiting for a change")
        return None

    async def _stop(self, child: subprocess.Popen[bytes]) -> None:
        """Stop a child in three steps (drain, hurry, kill), unless a signal comes."""
        for signal_child in (child.terminate, child.terminate, child.kill):
            signal_child()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_S):
                    while child.poll() is None and not self._signals:
                        await self._pause()
            if child.poll() is not None or self._signals:
                return

    async def _end(self, child: subprocess.Popen[bytes]) -> int:
        """Pass signals on to a child until it exits."""
        heard = 0
        while child.poll() is None:
            if self._signals > heard:
                heard += 1
                child.kill() if heard > 2 else child.terminate()  # noqa: PLR2004 - the third
            else:
                await self._pause()
        # A child that exited by itself was reported before.
        return exit_codes.INTERRUPTED if heard and child.returncode < 0 else exit_codes.OK

    async def _pause(self) -> None:
        """Wait a moment, or until a signal comes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await self._signalled.wait()
        self._signalled.clear()

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            now_s = loop.time()
            if now_s >= self._echo_until_s:
                self._signals += 1
                self._signalled.set()
            self._echo_until_s = now_s + _ECHO_S

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _say(self, text: str) -> None:
        if not self._quiet:
            # The child may have written to the last line of the terminal, and will again.
            clear = _CLEAR_LINE if sys.stderr.isatty() else ""
            sys.stderr.write(f"{clear}bucketq: {printable(text)}\n")
            sys.stderr.flush()


@contextmanager
def ended_with_parent(end: Callable[[], None]) -> Iterator[None]:
    """In a child of a reloader, call ``end`` when the reloader is gone."""
    number = os.environ.pop(_LIFELINE, "")
    if not number:
        yield
        return
    loop, life = asyncio.get_running_loop(), int(number)

    def on_end() -> None:
        loop.remove_reader(life)
        end()

    loop.add_reader(life, on_end)
    try:
        yield
    finally:
        loop.remove_reader(life)


def source_marks(folder: Path) -> Marks:
    """Stat the Python files under a folder, except hidden, installed and built ones."""
    marks: Marks = {}
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [name for name in folders if _is_source(here / name)]
        for name in names:
            if name.endswith(".py"):
                with suppress(OSError):  # It was deleted meanwhile.
                    status = (here / name).stat()
                    marks[here / name] = (status.st_mtime_ns, status.st_size)
    return marks


def _is_source(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in _NOT_SOURCE:
        return False
    return not (folder / "pyvenv.cfg").exists()

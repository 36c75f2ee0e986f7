"""The processes of a run: brokers as a user starts them, and clients; all are ended with it.

Whoever is started here bears a mark in its environment, so that in the end it can be shown that
nobody was left behind, whoever started it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.chaos.diary import read_diary
from tests.environ import ROOT, child_path
from tests.servers.process import Child
from tests.servers.server import ENVIRON

BUCKETQ = [sys.executable, "-m", "bucketq.cli"]
_MARK = "BUCKETQ_TEST_RUN"
_COMPLAINTS = ".stderr"
_ORPHAN = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?:  .*\n)*?  File .*, in spawn_main\n(?:  .*\n)*"
    r"(?:EOFError: Ran out of input|_pickle\.UnpicklingError: pickle data was truncated)\n"
)
"""What Python says in a process that a worker was just starting when it was killed."""
_SERVING = re.compile(r"serving .* at (\S+)")
_LEADING = re.compile(r"leading in epoch (\d+)")


def wait_until(is_so: Callable[[], object], patience_s: float, why: str = "") -> None:
    """Look until something is so."""
    until = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < until, f"it took more than {patience_s:g} s {why}"
        time.sleep(0.01)


class BrokerProcess(Child):
    """``bucketq serve``, as a user runs it."""

    def __init__(
        self,
        words: Sequence[str],
        log: Path,
        environ: dict[str, str],
        program: Sequence[str] = BUCKETQ,
    ) -> None:
        super().__init__([*program, "serve", *words], log, environ)
        self.log = log
        self.is_stopped = False
        self._is_to_end = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    @property
    def address(self) -> str:
        """Where it listens; empty until it does."""
        found = _SERVING.search(self.text())
        return found[1] if found else ""

    @property
    def is_serving(self) -> bool:
        """Whether it is there, and is to be."""
        return self.returncode is None and bool(self.address) and not self._is_to_end

    @property
    def epochs(self) -> list[int]:
        """The epochs in which it says to have led."""
        return [int(epoch) for epoch in _LEADING.findall(self.text())]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self) -> list[str]:
        """The last that it said."""
        return self.text().splitlines()[-3:]

    def send(self, how: signal.Signals) -> None:
        self.is_stopped = how is signal.SIGSTOP
        self._is_to_end = self._is_to_end or how in {signal.SIGTERM, signal.SIGKILL}
        self._process.send_signal(how)

    def kill(self) -> None:
        """End it without a warning, and see that it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait(10)

    def wait(self, patience_s: float = 30.0) -> int:
        """Wait until it ends by itself; returns its exit code."""
        return self._process.wait(patience_s)

    def wait_until_serving(self, patience_s: float = 20.0) -> None:
        wait_until(lambda: self.address or self.returncode is not None, patience_s, self.text())
        assert self.returncode is None, self.text()

    def wait_until_leading(self, epoch: int | None = None, patience_s: float = 20.0) -> None:
        def leads() -> bool:
            return bool(self.epochs) if epoch is None else epoch in self.epochs

        wait_until(lambda: leads() or self.returncode is not None, patience_s, self.text())
        assert self.returncode is None, self.text()


class ClientProcess:
    """One life of one client."""

    def __init__(self, pid: int, number: int, diary: Path) -> None:
        self.pid = pid
        self.number = number
        self.diary = diary
        self.is_stopped = False
        self.is_killed = False
        self._is_gone = False
        # It is nobody's child here, so its id may become another's when it has ended; this not.
        self._handle = None
        with suppress(ProcessLookupError):
            self._handle = os.pidfd_open(pid) if sys.platform == "linux" else None

    @property
    def is_alive(self) -> bool:
        self.send(None)
        return not self._is_gone

    def send(self, how: signal.Signals | None) -> None:
        """Send a signal; None only looks whether there is anybody."""
        if self._is_gone:
            return
        self.is_stopped = how is signal.SIGSTOP or (how is None and self.is_stopped)
        self.is_killed = self.is_killed or how is signal.SIGKILL
        try:
            if sys.platform != "linux":
                os.kill(self.pid, how or 0)
            elif self._handle is None:
                self._is_gone = True
            else:
                signal.pidfd_send_signal(self._handle, how or 0)
        except ProcessLookupError:
            self._is_gone = True

    def close(self) -> None:
        """End it, and let go of it."""
        self.send(signal.SIGKILL)
        self._is_gone = True
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def wait(self, patience_s: float) -> None:
        wait_until(lambda: not self.is_alive, patience_s, f"until {self.diary.name} ended")

    def lines(self) -> list[dict[str, Any]]:
        return read_diary(self.diary)


class Fleet:
    """All processes of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid4().hex
        self.environ = {
            **ENVIRON,
            _MARK: self.mark,
            "PYTHONPATH": child_path(ROOT),
            "TMPDIR": str(folder),
            "NO_COLOR": "1",
        }
        self.brokers: list[BrokerProcess] = []
        self.clients: list[ClientProcess] = []
        self._nursery: subprocess.Popen[str] | None = None

    def serve(self, *words: str, program: Sequence[str] = BUCKETQ, **environ: str) -> BrokerProcess:
        """Start ``bucketq serve``."""
        log = self.folder / f"broker-{len(self.brokers)}.log"
        broker = BrokerProcess(words, log, {**self.environ, **environ}, program)
        self.brokers.append(broker)
        return broker

    def command(self, *words: str, timeout_s: float = 40.0) -> subprocess.CompletedProcess[str]:
        """Run any command of ``bucketq`` to its end."""
        return subprocess.run(
            [*BUCKETQ, *words],
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def client(self, number: int, url: str, role: str, seed: int, **wish: Any) -> ClientProcess:
        """Start a client with a diary of its own."""
        life = sum(client.number == number for client in self.clients)
        diary = self.folder / f"client-{number}-{life}"
        line = {"url": url, "role": role, "seed": seed, "diary": str(diary)}
        line["complaints"] = f"{diary}{_COMPLAINTS}"
        line |= {"mode": "auto", "launch": "never", "timeout_s": 60.0, "pause_s": 0.02}
        line |= {"kinds": "plain"} | wish
        nursery = self._nursery or self._start_nursery()
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        nursery.stdin.write(json.dumps(line) + "\n")
        nursery.stdin.flush()
        client = ClientProcess(int(nursery.stdout.readline()), number, diary)
        self.clients.append(client)
        return client

    def _start_nursery(self) -> subprocess.Popen[str]:
        with (self.folder / f"nursery{_COMPLAINTS}").open("wb") as complaints:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.nursery"],
                cwd=ROOT,
                env={**os.environ, **self.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        return self._nursery

    def complaints(self) -> str:
        """What the clients said on stderr, where a library has no business."""
        said = {path: path.read_text("utf-8", "replace") for path in self._complaints()}
        for client in self.clients:
            path = client.diary.with_name(client.diary.name + _COMPLAINTS)
            if client.is_killed and path in said:
                said[path] = _ORPHAN.sub("", said[path])
        return "\n".join(f"{path.stem}: {text}" for path, text in said.items() if text)

    def _complaints(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{_COMPLAINTS}"))

    def leaders(self) -> dict[int, BrokerProcess | ClientProcess]:
        """Who says to have led in which epoch."""
        found: dict[int, BrokerProcess | ClientProcess] = {}
        for broker in self.brokers:
            for epoch in broker.epochs:
                assert epoch not in found, f"two brokers led in epoch {epoch}"
                found[epoch] = broker
        for client in self.clients:
            said = client.diary.read_text() if client.diary.exists() else ""
            for led in _LEADING.findall(said):
                assert int(led) not in found, f"two brokers led in epoch {led}"
                found[int(led)] = client
        return found

    def end(self) -> None:
        """End everybody who is left, each by its id."""
        for client in self.clients:
            client.close()
        for broker in self.brokers:
            broker.stop()
        if self._nursery is not None:
            assert self._nursery.stdin is not None
            assert self._nursery.stdout is not None
            self._nursery.stdin.close()
            self._nursery.wait(20)
            self._nursery.stdout.close()

    def orphans(self) -> list[str]:
        """Who still bears the mark; everybody who is known has been ended before."""
        return [f"{pid}: {words}" for pid, words in self._marked().items()]

    def strangers(self) -> list[str]:
        """Who bears the mark and was not started from here, like the process of a handler."""
        known = {broker.pid for broker in self.brokers}
        known |= {client.pid for client in self.clients if client.is_alive}
        known |= {self._nursery.pid} if self._nursery is not None else set()
        return [f"{pid}: {words}" for pid, words in self._marked().items() if pid not in known]

    def _marked(self) -> dict[int, str]:
        needle = f"{_MARK}={self.mark}".encode()
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if needle in (place / "environ").read_bytes():
                    words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(place.name)] = words
        return found


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """Processes that end with the block, in a folder for what they write."""
    one = Fleet(folder)
    try:
        yield one
    finally:
        one.end()
    # The kernel takes a moment for those who were told by a signal.
    wait_until(lambda: not one.orphans(), 10, f"for {one.orphans()} to end")

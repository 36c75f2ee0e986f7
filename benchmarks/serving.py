"""A broker in a separate process, on a new queue, and measurements of its machine and store.

The benchmarks of brokers and of workers share it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import clock_gettime, perf_counter, sleep

from benchmarks.broker_processes import DelayedStore

from bucketq.codec.heading import read_heading
from bucketq.errors import CorruptStateError
from bucketq.store.base import ObjectStore
from bucketq.store.local import LocalStore

PROCESSES = Path(__file__).with_name("broker_processes.py")
BARE_WRITES = 15
QUIET = 0.15
"""A machine counts as quiet if other programs use at most this share."""
_TICKS = os.sysconf("SC_CLK_TCK")
_CPU_CLOCK = 2
"""Linux has a clock for each process, and its number is made with this."""


class Broker:
    """A broker in another process."""

    def __init__(self, path: Path, store: str, profile: Path | None = None) -> None:
        """Start it on a queue that does not exist yet."""
        self.path = path
        command = [sys.executable, "-m", "bucketq.cli", "serve", "--quiet", path.as_uri()]
        if store == "slow" or profile:
            flags = ["--profile", str(profile)] if profile else []
            what = "slow" if store == "slow" else "serve"
            command = [sys.executable, str(PROCESSES), *flags, what, path.as_uri()]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.url = f"bucketq://{self._address()}"

    def _address(self) -> str:
        for _ in range(600):
            try:
                record = read_heading(self.path.read_bytes(), "bench").broker
            except (FileNotFoundError, CorruptStateError):
                record = None
            if record is not None and record.address:
                return record.address
            if self.process.poll() is not None:
                break
            sleep(0.05)
        self.stop()
        message = "the broker did not start"
        raise RuntimeError(message)

    def version(self) -> int:
        """How often the queue has been written."""
        return read_heading(self.path.read_bytes(), "bench").version

    def cpu_s(self) -> float:
        """Return how much CPU time it has used."""
        return cpu_s(self.process.pid)

    def stop(self) -> None:
        """End it."""
        end(self.process)


def cpu_s(pid: int) -> float:
    """Return how much CPU time a process has used, with all its threads."""
    return clock_gettime((~pid << 3) | _CPU_CLOCK)


def machine_s() -> tuple[float, float]:
    """Return the busy time and the total time of all processors."""
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    ticks = [int(field) / _TICKS for field in line.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def wait_for_quiet(patience_s: float) -> None:
    """Wait until the machine is quiet, or the patience is over."""
    over = perf_counter() + patience_s
    while perf_counter() < over:
        before = machine_s()
        sleep(1)
        busy_s, all_s = (now - then for now, then in zip(machine_s(), before, strict=True))
        if busy_s < QUIET * all_s:
            return


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started: SIGTERM first, then SIGKILL."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def echo_in(folder: Path) -> Iterator[str]:
    """Run a bare gRPC server, and return its address."""
    path = folder / "echo"
    process = subprocess.Popen([sys.executable, str(PROCESSES), "echo", str(path)])
    try:
        wait_for(path)
        yield path.read_text(encoding="ascii")
    finally:
        end(process)


def wait_for(path: Path) -> None:
    """Wait until another process has written a file."""
    for _ in range(600):
        if path.exists():
            return
        sleep(0.05)
    message = f"nobody wrote {path}"
    raise RuntimeError(message)


@contextmanager
def broker_on(folder: Path, store: str, profile: Path | None = None) -> Iterator[Broker]:
    """Run a broker on a queue of its own."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as name:
        broker = Broker(Path(name) / "queue.json", store, profile)
        try:
            yield broker
        finally:
            broker.stop()


async def measure_bare(folder: Path, store_name: str, size_bytes: int) -> float:
    """The median time of a bare write."""
    inner = LocalStore(folder)
    store: ObjectStore = DelayedStore(inner) if store_name == "slow" else inner
    body, took_s = bytes(size_bytes), []
    etag = await store.put("bare.json", body)
    for _ in range(BARE_WRITES):
        begin = perf_counter()
        etag = await store.replace("bare.json", body, etag)
        took_s.append(perf_counter() - begin)
    await store.close()
    return median(took_s)

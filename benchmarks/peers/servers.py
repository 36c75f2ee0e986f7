"""The servers that peers need, each new, on a free port of the loopback, in a folder of its own.

PostgreSQL and Redis come from Debian's packages and are durable: ``fsync`` and
``synchronous_commit`` as PostgreSQL has them by default, ``appendfsync always`` for Redis. A server
runs only while a queue on it is measured.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from benchmarks.peers.table import ServerName

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0


class MissingServerError(Exception):
    """A server is not installed here."""


class Server(ABC):
    """A queue's server, or the file that does without one."""

    def __init__(self, folder: Path) -> None:
        """Make what it needs in an empty folder; ``start`` starts it."""
        self.folder = folder

    @property
    @abstractmethod
    def address(self) -> str:
        """What adapters connect to."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it answers."""

    @abstractmethod
    def fail(self) -> None:
        """Kill the process that answers, and let another one take its place."""

    @abstractmethod
    def stop(self) -> None:
        """End its processes."""


class Files(Server):
    """No server: a file in a folder."""

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self.folder / "queue.json")

    def start(self) -> None:
        """Do nothing."""

    def fail(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class BucketqServe(Files):
    """``bucketq serve`` on a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start a broker; the second one is a standby."""
        url = Path(self.address).as_uri()
        process = subprocess.Popen(
            [sys.executable, "-m", "bucketq.cli", "serve", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(process)
        assert process.stdout is not None
        if not process.stdout.readline():
            message = f"`bucketq serve {url}` ended with exit code {process.wait()}"
            raise RuntimeError(message)

    def fail(self) -> None:
        """Kill the leader; its standby takes over."""
        leader = self._processes.pop(0)
        leader.kill()
        end(leader)

    def stop(self) -> None:
        """End all brokers."""
        for process in self._processes:
            end(process)


class OneProcess(Server):
    """A server that is one process, and is started again when it has failed."""

    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The command line."""

    def options(self) -> dict[str, Any]:
        """How the process is started: in its folder, and not as root."""
        return {"cwd": self.folder, **as_user(self.folder)}

    def start(self) -> None:
        """Start the process, and wait until its port answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, **self.options()
            )
        over = perf_counter() + START_S
        while not self.answers():
            if self._process.poll() is not None or perf_counter() > over:
                log_end = (self.folder / "log").read_text("utf-8", "replace")[-500:]
                message = f"{self.command()[0]} did not start: {log_end}"
                raise RuntimeError(message)
            sleep(0.01)

    @abstractmethod
    def answers(self) -> bool:
        """Whether it answers."""

    def fail(self) -> None:
        """Kill the process, and start it again at once, and again if needed, as a supervisor."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        over = perf_counter() + START_S
        while True:
            try:
                return self.start()
            except RuntimeError:
                if perf_counter() > over:
                    raise
                sleep(0.05)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            end(self._process, self.stop_signal)


class BareServer(OneProcess):
    """The bare broker in Python."""

    @property
    def address(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """The command line."""
        module = "benchmarks.peers.bare_broker"
        return [sys.executable, "-m", module, str(self.port), str(self.folder / "jobs")]

    def options(self) -> dict[str, Any]:
        """In the checkout, whose module it is, and as the user who may read it."""
        return {"cwd": ROOT}

    def answers(self) -> bool:
        """Whether it accepts connections."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


class RedisServer(OneProcess):
    """Redis with an append-only file that is synced before each answer."""

    @property
    def address(self) -> str:
        """Its URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        """The command line."""
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        return [
            redis_server(),
            *(word for key, value in options.items() for word in (f"--{key}", value)),
        ]

    def answers(self) -> bool:
        """Whether it has loaded its file: it answers a PING with an error before."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


class PostgresServer(OneProcess):
    """PostgreSQL with the settings that ``initdb`` writes."""

    stop_signal = signal.SIGQUIT
    """At once: its folder is removed, so nothing has to be written for a later start."""

    @property
    def address(self) -> str:
        """Its URL."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def command(self) -> list[str]:
        """The command line."""
        data = self.folder / "data"
        if not data.exists():
            make_cluster(data, self.folder.with_name("postgres-template"))
        return [
            postgres_program("postgres"), "-D", str(data), "-p", str(self.port),
            "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}",
        ]  # fmt: skip

    def answers(self) -> bool:
        """Whether it accepts connections."""
        ready = [postgres_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0


SERVERS: dict[ServerName, type[Server]] = {
    "files": Files,
    "broker": BucketqServe,
    "bare": BareServer,
    "redis": RedisServer,
    "postgres": PostgresServer,
}


@contextmanager
def running(name: ServerName, scratch: Path) -> Iterator[Server]:
    """Run a new server; stop it and remove its folder at the end."""
    with tempfile.TemporaryDirectory(
        dir=scratch, prefix=f"{name}-", ignore_cleanup_errors=True
    ) as made:
        server = SERVERS[name](Path(made))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A folder for the whole run, which the users of servers can enter."""
    with tempfile.TemporaryDirectory(dir=parent, prefix="bucketq-peers-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def end(process: subprocess.Popen[bytes], first: signal.Signals = signal.SIGTERM) -> None:
    """End a process that we started: with a signal first, then with SIGKILL."""
    process.send_signal(first)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def as_user(folder: Path) -> dict[str, Any]:
    """Options of a process that must not be root: PostgreSQL refuses to be."""
    if os.geteuid() != 0:
        return {}
    user = unprivileged()
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid}


@cache
def unprivileged() -> pwd.struct_passwd:
    """The user that Debian's package makes for PostgreSQL, or ``nobody``."""
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def make_cluster(data: Path, template: Path) -> None:
    """Make PostgreSQL's folder, a copy of one that is made once for the run.

    Connections of this machine need no password.
    """
    if not template.exists():
        template.mkdir()
        make = [postgres_program("initdb"), "-D", str(template), "-U", "postgres", "-A", "trust"]
        run_as_user([*make, "-E", "UTF8", "--no-locale"], template)
    run_as_user(["cp", "-a", str(template), str(data)], data.parent)


def run_as_user(command: list[str], folder: Path) -> None:
    """Run a command that writes to a folder as the user who owns it."""
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, **as_user(folder)
    )
    if ran.returncode:
        message = f"{command[0]} failed: {ran.stderr[-500:]}"
        raise RuntimeError(message)


@cache
def redis_server() -> str:
    """Where Redis is."""
    found = shutil.which("redis-server")
    if found is None:
        message = "redis-server is not installed (on Debian or Ubuntu: apt install redis-server)"
        raise MissingServerError(message)
    return found


@cache
def postgres_program(name: str) -> str:
    """Where a program of PostgreSQL is: of Debian's newest version, or on the PATH."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*") if path.name.isdecimal()]
    for version in sorted(versions, key=lambda path: -int(path.name)):
        if (version / "bin" / name).exists():
            return str(version / "bin" / name)
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not installed (on Debian or Ubuntu: apt install postgresql)"
        raise MissingServerError(message)
    return found

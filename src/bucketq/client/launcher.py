"""Starts a broker for a client that finds none: in its own process, or as a new one.

At most one broker for each host and queue is started like this. The process that runs it holds a
lock file of this host; the clients of other processes look again and find the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bucketq.errors import StoreRefusedError

if TYPE_CHECKING:  # Most clients start no broker.
    from bucketq.broker.broker import Broker
    from bucketq.broker.server import Server

_LEAD_S = 1.0
"""How long a client waits for the broker that it starts to lead, which takes one write."""
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW


class Launcher(Protocol):
    """Starts brokers of one queue."""

    @property
    def broker(self) -> Broker | None:
        """The broker, if it runs in this process."""
        ...

    async def launch(self, after: int) -> None:
        """Start a broker that takes over from epoch ``after``, unless one is being started.

        There is evidence that no broker leads in that epoch. It may not lead yet when this returns.
        """
        ...

    async def close(self) -> None:
        """Retire a broker that runs in this process, and release the lock."""
        ...


class HostLock:
    """A lock that one process of this host holds at a time, for the queue at ``url``."""

    def __init__(self, url: str) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"bucketq-{os.getuid()}"
        self._name = blake2b(url.encode(), digest_size=16).hexdigest() + ".lock"
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take it without waiting, and return whether this process has it.

        Raises ``StoreRefusedError`` if another user may write to the folder of the lock.
        """
        if self._descriptor is not None:
            return True
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def _open(self) -> int:
        """Open the lock file, in a folder that no other user can write to."""
        try:
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(mode=0o700)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        except OSError as error:
            raise self._squatted(os.strerror(error.errno or 0).lower()) from error
        try:
            info = os.fstat(folder)
            if info.st_uid != os.geteuid():
                raise self._squatted(f"it belongs to user {info.st_uid}")
            if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise self._squatted("other users may write in it")
            flags = os.O_RDWR | os.O_CREAT | _SAFE
            return os.open(self._name, flags, 0o600, dir_fd=folder)
        finally:
            os.close(folder)

    def _squatted(self, why: str) -> StoreRefusedError:
        return StoreRefusedError(
            f"cannot use {self._folder}, which must be a directory that only this user can write "
            f"to: {why}; remove it, or set TMPDIR to another directory for every process of this "
            'user that uses the queue, or connect with launch="never"'
        )

    def hand_over(self, start: Callable[[int], subprocess.Popen[bytes]]) -> None:
        """Give it to a child process, which ``start`` starts with the lock's descriptor."""
        if self._descriptor is None:
            return
        child = start(self._descriptor)
        # It outlives this process; without a return code Python would warn about that.
        child.returncode = 0
        self.release()

    def release(self) -> None:
        """Release it. The file stays: two processes must never lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class InsideLauncher:
    """Starts a broker in this process; it lives as long as the client does."""

    def __init__(self, server: Server, broker: Broker, lock: HostLock, listen: str) -> None:
        self._server = server
        self._broker = broker
        self._lock = lock
        self._listen = listen
        self._is_started = False

    @property
    def broker(self) -> Broker | None:
        """The broker, once it is started."""
        return self._broker if self._is_started else None

    async def launch(self, after: int) -> None:
        """Start it, and wait up to a second until it leads."""
        if not self._is_started:
            if not self._lock.take():
                return
            self._broker.has_evidence_against(after)
            await self._server.start(self._listen)
            self._is_started = True
        elif self._broker.failure is not None:
            self._broker.has_evidence_against(after)
            self._server.revive()
        loop = asyncio.get_running_loop()
        leading = loop.create_task(self._broker.leading.wait())
        over = loop.create_task(self._server.until_over())
        await asyncio.wait([leading, over], timeout=_LEAD_S, return_when=asyncio.FIRST_COMPLETED)
        leading.cancel()
        over.cancel()
        await asyncio.gather(leading, over, return_exceptions=True)
        self._server.raise_if_over()

    async def close(self) -> None:
        """Stop the broker, so that another process of this host can start one."""
        if self._is_started:
            self._is_started = False
            await self._server.stop()
        self._lock.release()


class SpawnLauncher:
    """Starts a broker as a process, which ends after ``idle_exit_s`` without clients."""

    broker = None

    def __init__(self, url: str, lock: HostLock, idle_exit_s: float) -> None:
        self._url = url
        self._lock = lock
        self._idle_exit_s = idle_exit_s

    async def launch(self, after: int) -> None:
        """Start one. It gets the lock, which is free again when it ends."""
        del after
        if not self._lock.take():
            return
        command = [sys.executable, "-m", "bucketq.cli", "serve", self._url, "--quiet"]
        command += ["--idle-exit", f"{self._idle_exit_s:g}"]
        self._lock.hand_over(
            lambda descriptor: subprocess.Popen(  # noqa: S603 - our own command line
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(descriptor,),
            )
        )

    async def close(self) -> None:
        """Leave it running."""
        self._lock.release()

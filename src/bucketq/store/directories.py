"""Directories: opened, made, locked and synced, for ``atomic_file``.

A name is on the disk once its directory has been synced after the rename or the unlink. If that
sync fails, nothing in this module tries again: the kernel reports such an error once and may
forget what it could not write, so that the next sync succeeds and proves nothing. The caller gets
``UnsyncedError``, which is final.

The lock of a directory is held for some tens of microseconds, unless its holder is stopped just
then. So it is polled and never waited for in the kernel: a thread that waits there cannot be
ended, and keeps its process from exiting.

Reads and writes only the directories it is given, those above them, and their lock files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from threading import Event

from bucketq.store import file_permissions, owned_file
from bucketq.store.lock_holder import Holder, find_holder

LOCK_NAME = ".bucketq.lock"

# The lock is held for less than the first pause. The last one is short enough to be fair to writers
# that have waited for longer, and long enough to cost nothing while the holder is stopped.
_FIRST_PAUSE_S = 0.0001
_LAST_PAUSE_S = 0.01
# Some thousand times as long as the lock is held. Callers with short timeouts get the reason in
# time, and reads need not wait for the write any longer. A retry writes the whole file again.
_LONGEST_WAIT_S = 0.5

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class UnsyncedError(OSError):
    """A sync failed: the disk may or may not keep what was last seen or done."""


@contextlib.contextmanager
def opened(
    path: Path, *, makes: bool = False, like: os.stat_result | None = None
) -> Iterator[int | None]:
    """Open a directory, so that all steps of a write use the same one; None: there is none.

    With ``makes`` it is made if necessary, and those above it, for the users of the file ``like``.
    """
    try:
        descriptor = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        if not makes:
            yield None
            return
        _make(path, like)
        sync_above(path)
        descriptor = os.open(path, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make(path: Path, like: os.stat_result | None) -> None:
    """Make a directory, and those above it that are missing."""
    missing = [path, *takewhile(lambda parent: not parent.exists(), path.parents)]
    for each in reversed(missing):
        try:
            each.mkdir(file_permissions.PRIVATE_DIRECTORY)
        except FileExistsError:
            continue  # Another process was faster; it may not have synced it yet.
        if like is not None:
            with opened(each) as made:
                if made is not None:
                    file_permissions.copy_to_directory(made, like)


def sync(directory: int) -> None:
    """Make the names in a directory durable."""
    try:
        os.fsync(directory)
    except OSError as error:
        raise UnsyncedError(error.errno, error.strerror) from error


def sync_filesystem(file: int) -> None:
    """Make everything durable on the filesystem of an open file, the names in directories too.

    It costs more than syncing a directory, and is for users who may not open that directory.
    Raises ``NotImplementedError`` if the operating system has no such call, as macOS does not.
    """
    import ctypes  # noqa: PLC0415 - for few users, see above

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        raise NotImplementedError
    if libc.syncfs(file) != 0:
        number = ctypes.get_errno()
        raise UnsyncedError(number, os.strerror(number))


def sync_above(path: Path) -> None:
    """Make the name of a directory durable, and the names of those above it.

    They may have been made a moment ago, by this process or by another that has not synced them.
    It ends at the mount point, whose name is not on this disk, and at a directory that this user
    may not read, which was hardly made for a queue.
    """
    path = path.resolve()
    device = path.stat().st_dev
    for parent in path.parents:
        if parent.stat().st_dev != device:
            return
        try:
            descriptor = os.open(parent, _DIRECTORY)
        except PermissionError:
            return
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)


class HeldError(OSError):
    """Another process holds the lock of a directory and does not release it."""

    def __init__(self, holder: Holder | None) -> None:
        super().__init__(errno.EAGAIN, f"another process holds {LOCK_NAME}")
        self.holder = holder


@contextlib.contextmanager
def locked(directory: int, given_up: Event) -> Iterator[int]:
    """Hold the lock of a directory, for very few system calls; yield the lock file.

    Raises ``HeldError`` if another process holds it for too long, or as soon as the caller has
    given up.
    """
    while True:
        lock = _open_lock(directory)
        try:
            file_permissions.share_lock(lock, directory)
            _take(lock, given_up)
            # A user may have removed it by hand: then others lock another file.
            if owned_file.is_named(directory, LOCK_NAME, lock):
                yield lock
                return
        finally:
            owned_file.unlock(lock)


def _open_lock(directory: int) -> int:
    """Open the lock file of a directory; make it if there is none.

    Two steps, because Linux does not let a user open another's file in ``/tmp`` as if to make it.
    """
    try:
        return os.open(LOCK_NAME, os.O_RDONLY | owned_file.SAFE, dir_fd=directory)
    except FileNotFoundError:
        flags = os.O_RDONLY | os.O_CREAT | owned_file.SAFE
        return os.open(LOCK_NAME, flags, file_permissions.PRIVATE, dir_fd=directory)


def _take(lock: int, given_up: Event) -> None:
    """Take a lock, with longer and longer pauses while another process holds it."""
    pause_s, waited_s = _FIRST_PAUSE_S, 0.0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if waited_s >= _LONGEST_WAIT_S or given_up.wait(pause_s):
                raise HeldError(find_holder(lock)) from error
            waited_s += pause_s
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        else:
            return

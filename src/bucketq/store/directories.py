"""Directories: opened, made, locked and synced, for ``atomic_file``.

A name is on the disk once its directory has been synced after the rename or the unlink. If that
sync fails, nothing in this module tries again: the kernel reports such an error once and may
forget what it could not write, so that the next sync succeeds and proves nothing. The caller gets
``UnsyncedError``, which is final.

May touch: the directories it is given, those above them, and their lock files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from bucketq.store import owned_file

LOCK_NAME = ".bucketq.lock"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class UnsyncedError(OSError):
    """A sync failed: the disk may or may not keep what was last seen or done."""


@contextlib.contextmanager
def opened(path: Path, *, makes: bool = False) -> Iterator[int | None]:
    """Open a directory, so that all steps of a write meet in the same one; None: there is none."""
    try:
        descriptor = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        if not makes:
            yield None
            return
        _make(path)
        sync_above(path)
        descriptor = os.open(path, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make(path: Path) -> None:
    """Make a directory, and those above it."""
    try:
        path.mkdir()
    except FileNotFoundError:
        _make(path.parent)
        path.mkdir(exist_ok=True)
    except FileExistsError:
        return  # Another process was faster; it may not have synced it yet.


def sync(directory: int) -> None:
    """Make the names in a directory durable."""
    try:
        os.fsync(directory)
    except OSError as error:
        raise UnsyncedError(error.errno, error.strerror) from error


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


@contextlib.contextmanager
def locked(directory: int) -> Iterator[int]:
    """Hold the lock of a directory, for very few system calls; yield the lock file."""
    while True:
        lock = os.open(
            LOCK_NAME, os.O_RDONLY | os.O_CREAT | owned_file.SAFE, 0o666, dir_fd=directory
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Somebody may have removed it by hand: then others lock another file.
            if owned_file.is_named(directory, LOCK_NAME, lock):
                yield lock
                return
        finally:
            owned_file.release(lock)

"""Files that are replaced whole or not at all, by one of many processes at a time.

This is the part of the file store that knows about locks, temporary files and syncing; it
knows nothing of keys or of what an error means to the caller, and raises ``OSError``.

Promises:

* A write is whole or has not happened, for every reader, in every process, through
  ``SIGKILL`` and power loss. It goes into a temporary file in the same directory, is synced,
  renamed over the file, and the directory is synced before ``write`` returns.
* Compare and rename are one step between all processes: they happen under ``flock`` on
  ``.bucketq.lock`` in the file's directory. That one is never unlinked and never renamed,
  because a lock on a file that can be replaced locks nothing.
* An etag never names two contents of one path. See ``_stamp``.
* A stopped process stops nobody. The slow part, filling and syncing the temporary file, needs
  no lock; the lock is held for microseconds. Under a lock around the whole write, a broker
  that is suspended under load would nearly always hold it, and none could take its place.

A writer holds ``flock`` on its temporary file for as long as that is its own. One that can be
locked was left behind by a process that died: it is used again, or swept.

Locks are released by name and not by closing alone, because a child process that was forked
meanwhile has a copy of the descriptor, and would keep the lock for the rest of its life.

May touch: the file it is asked to write, its directory, and the names that ``is_reserved``
tells, which are its own. Network filesystems are not supported: their locks and renames
promise less.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError as missing:
    raise ImportError(
        "file:// queues need the file locks of a POSIX system (fcntl), which this one lacks; "
        "keep the queue on object storage instead"
    ) from missing

Demand = Callable[[os.stat_result | None], None]
"""Raises unless the file that is there, or None, is one that may be replaced."""

_LOCK_NAME = ".bucketq.lock"
_TEMP_NAME = re.compile(r"\.bucketq\.\d+\.tmp")
_STAMP_STEP_NS_MAX = 1 << 36  # About a minute: no filesystem keeps times more coarsely.

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class UnsyncedError(OSError):
    """The file has been replaced, and the disk may or may not keep it so."""


def is_reserved(name: str) -> bool:
    """Tell whether a file name belongs to this module, and so to no object."""
    return name.startswith(".bucketq.")


def etag_of(info: os.stat_result) -> str:
    """Name a version of a file; ``_stamp`` says why no other one bears this name."""
    return f"{info.st_mtime_ns:x}-{info.st_ino:x}-{info.st_size:x}"


def read(path: Path, known_etag: str | None) -> tuple[bytes | None, str]:
    """Read a file and its etag; the bytes are None where the etag is the known one.

    It takes no lock, for once a file has its name it is never changed again: the one that
    was opened stays whole, whatever replaces it meanwhile.
    """
    # Non-blocking, because opening a pipe would otherwise wait for somebody to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _SAFE)
    try:
        info = os.fstat(descriptor)
        _demand_regular(info)
        etag = etag_of(info)
        if etag == known_etag:
            return None, etag
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.read(), etag
    finally:
        os.close(descriptor)


def write(path: Path, body: bytes, demand: Demand, *, makes_parents: bool, sweeps: bool) -> str:
    """Put a file in place, if what is there meets the demand; return its etag.

    The demand is made twice. The first time, without the lock, spares the disk a write that
    has already lost; the second time, under it, is the one that counts.
    """
    with _opened_directory(path.parent, makes=makes_parents) as directory:
        if directory is None:
            demand(None)
            raise FileNotFoundError(errno.ENOENT, "no such directory")
        demand(_find(directory, path.name))
        if sweeps:
            _sweep(directory)
        with _temp_file(directory) as (temp, temp_name):
            _fill(temp, body)
            with _locked(directory) as lock:
                current = _find(directory, path.name)
                demand(current)
                _demand_writable(directory, path.name, current)
                etag = _stamp(temp, lock, current)
                os.rename(temp_name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        _sync_directory(directory)
    return etag


def delete(path: Path) -> None:
    """Remove a file, if it is there, and keep its time for whoever comes after it."""
    with _opened_directory(path.parent, makes=False) as directory:
        if directory is None or _find(directory, path.name) is None:
            return
        with _locked(directory) as lock:
            current = _find(directory, path.name)
            if current is None:
                return
            # Only the owner of the lock file may set its time. Where that is another user,
            # a successor's etag rests on the clock and the inode alone.
            with contextlib.suppress(PermissionError):
                _set_time(lock, max(current.st_mtime_ns, os.fstat(lock).st_mtime_ns))
            os.unlink(path.name, dir_fd=directory)
        _sync_directory(directory)


@contextlib.contextmanager
def _opened_directory(path: Path, *, makes: bool) -> Iterator[int | None]:
    """Open a directory, so that all steps of a write meet in the same one; None: there is none."""
    try:
        descriptor = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        if not makes:
            yield None
            return
        _make_directory(path)
        descriptor = os.open(path, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_directory(path: Path) -> None:
    """Make a directory, and those above it, so that they outlive a power loss."""
    try:
        path.mkdir()
    except FileNotFoundError:
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
    except FileExistsError:
        return
    with _opened_directory(path.parent, makes=False) as parent:
        if parent is not None:
            os.fsync(parent)


def _find(directory: int, name: str) -> os.stat_result | None:
    """Look at the file of this name; None means that there is none."""
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _demand_regular(info)
    return info


def _demand_writable(directory: int, name: str, current: os.stat_result | None) -> None:
    """Refuse a file that its owner has made read-only; a rename would not care."""
    if current is not None and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _demand_regular(info: os.stat_result) -> None:
    """Refuse all but plain files: a rename would replace a link, and leave its target behind."""
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


@contextlib.contextmanager
def _locked(directory: int) -> Iterator[int]:
    """Hold the lock of a directory, for a few system calls; yield the lock file."""
    while True:
        lock = os.open(_LOCK_NAME, os.O_RDONLY | os.O_CREAT | _SAFE, 0o666, dir_fd=directory)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Somebody may have removed it by hand: then others lock another file.
            if _is_named(directory, _LOCK_NAME, lock):
                yield lock
                return
        finally:
            _release(lock)


def _is_named(directory: int, name: str, descriptor: int) -> bool:
    """Tell whether a name still means the file that was opened under it."""
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(info, os.fstat(descriptor))


@contextlib.contextmanager
def _temp_file(directory: int) -> Iterator[tuple[int, str]]:
    """Own an empty temporary file; it is gone afterwards, unless it was renamed.

    Names are numbered from zero and the first free one is taken. One that a dead writer left
    is free, so what is left behind never outgrows the number of writers at one time.
    """
    names = (f".bucketq.{number}.tmp" for number in itertools.count())
    temp, name = next(
        (temp, name)
        for name in names
        if (temp := _claim_temp(directory, name, os.O_CREAT)) is not None
    )
    try:
        os.ftruncate(temp, 0)
        yield temp, name
    finally:
        # Looked up again, because after a rename the name may be another writer's by now.
        if _is_named(directory, name, temp):
            os.unlink(name, dir_fd=directory)
        _release(temp)


def _claim_temp(directory: int, name: str, flags: int) -> int | None:
    """Open and lock a temporary file; None means that a living writer has it, or none is there.

    Between opening and locking it the owner may have renamed it into place, or a sweeper
    unlinked it. Hence the look at its name before anything is done to it.
    """
    try:
        temp = os.open(name, os.O_RDWR | flags | _SAFE, 0o666, dir_fd=directory)
    except PermissionError:
        if _find(directory, name) is None:
            raise
        return None  # Another user's.
    is_mine = False
    try:
        fcntl.flock(temp, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_mine = _is_named(directory, name, temp)
    except BlockingIOError:
        return None
    finally:
        if not is_mine:
            _release(temp)
    return temp if is_mine else None


def _release(descriptor: int) -> None:
    """Unlock and close a file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _sweep(directory: int) -> None:
    """Remove the temporary files of dead writers, as far as this user may."""
    for name in filter(_TEMP_NAME.fullmatch, os.listdir(directory)):
        with contextlib.suppress(OSError):
            temp = _claim_temp(directory, name, 0)
            if temp is not None:
                try:
                    os.unlink(name, dir_fd=directory)
                finally:
                    _release(temp)


def _fill(temp: int, body: bytes) -> None:
    """Write the bytes and see them on the disk.

    After a failed sync the kernel forgets what it could not write, and the next one succeeds.
    So a sync is never tried twice: the file is thrown away.
    """
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(temp, rest) :]
    if sys.platform == "darwin":
        fcntl.fcntl(temp, fcntl.F_FULLFSYNC)  # There, fsync leaves it in the disk's cache.
    else:
        os.fsync(temp)


def _stamp(temp: int, lock: int, current: os.stat_result | None) -> str:
    """Give a file that is about to take a name the rights and a later time than the one there.

    The etag is made of time, inode and size, since the bytes themselves must stay plain JSON.
    None of these alone tells two versions apart: clocks tick every 4 ms or jump back, freed
    inodes are used again at once, and sizes repeat. So time is made a generation that rises
    strictly from each version to the next, and, through the time of the lock file, also from
    a deleted one to its successor.

    Syncing the directory later makes this durable too; were it lost with the power, nobody
    would be left who knows the lost etag.
    """
    floor_ns = os.fstat(lock).st_mtime_ns
    if current is not None:
        floor_ns = max(floor_ns, current.st_mtime_ns)
        _dress(temp, current)
    step_ns = 1
    while (info := os.fstat(temp)).st_mtime_ns <= floor_ns:
        if step_ns > _STAMP_STEP_NS_MAX:
            raise OSError(errno.EINVAL, "the file cannot be given a later time than it has")
        _set_time(temp, floor_ns + step_ns)  # Doubled, because a filesystem may round it.
        step_ns *= 2
    return etag_of(info)


def _dress(temp: int, current: os.stat_result) -> None:
    """Keep the owner and the mode, so that a write by root does not lock out the user."""
    info = os.fstat(temp)
    if (info.st_uid, info.st_gid) != (current.st_uid, current.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(temp, current.st_uid, current.st_gid)
    if info.st_mode != current.st_mode:
        os.fchmod(temp, stat.S_IMODE(current.st_mode))


def _set_time(descriptor: int, time_ns: int) -> None:
    """Set the time of a file to the nanosecond, as far as the filesystem keeps it."""
    os.utime(descriptor, ns=(time_ns, time_ns))


def _sync_directory(directory: int) -> None:
    """See a rename or an unlink on the disk."""
    try:
        os.fsync(directory)
    except OSError as error:
        raise UnsyncedError(error.errno, error.strerror) from error

"""Files that one writer owns: it fills one of them before the file takes its name.

There are two kinds, both hidden, both in the directory of the file that is written:

* A temporary file, ``.bucketq.N.tmp``, is new and empty.
* A spare, ``.bucketq.NAME.N.spare``, was once the file NAME itself. Making and freeing files
  costs a disk several times more than overwriting one, so what is replaced is kept for a
  later write. There are at most two for each name. One that is much longer than what is written
  is not used, because freeing the rest takes longer than making a file; it is removed afterwards.

An owner holds ``flock`` on its file. A file that can be locked has no owner: the owner has
died, or it is a spare. Unlinking it then is always safe. Writing to a spare is not, because it was
public: ``_is_free`` decides when that may be done, and if it is in doubt, the spare is deleted. A
write never depends on a spare, so errors about spares are ignored.

A process that opened a spare while it was public must never see it change. A lease of the kernel
ensures that: it is granted only while no other process has the file open or mapped. It
is kept while the file is written, because a process may already have looked up the name and
not yet have opened the file: the open then waits for the end of the lease.

Reads and writes only hidden files of the directories it is given.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from bucketq.store import file_permissions

_TEMP_NAME = r"\.bucketq\.[0-9]+\.tmp"
_SPARE_NAME = r"(?s)\.bucketq\.(.+)\.[0-9]\.spare"
_SPARES_MAX = 2  # One is filled while the other name is given to the file that it replaces.

SAFE = os.O_CLOEXEC | os.O_NOFOLLOW


@contextlib.contextmanager
def owned(directory: int, spare: tuple[int, str] | None) -> Iterator[tuple[int, str]]:
    """Own the spare, or else an empty temporary file; it is gone afterwards, unless renamed.

    The body ends its lease and renames it, or raises.

    Temporary files are numbered from zero and the first free number is taken. One that a dead
    writer left is free, so these never outgrow the number of writers at one time.
    """
    file, name = spare or next(
        (temp, name)
        for number in itertools.count()
        if (temp := _claim_temp(directory, name := f".bucketq.{number}.tmp")) is not None
    )
    try:
        if spare is None:
            os.ftruncate(file, 0)
        yield file, name
    except BaseException:
        try:
            # Looked up again: after a rename the name may be another writer's by now.
            if is_named(directory, name, file):
                os.unlink(name, dir_fd=directory)
        finally:
            release(file)
        raise
    unlock(file)


def take_spare(directory: int, path: Path, size_bytes: int) -> tuple[int, str] | None:
    """Own a spare of this file that may be written to, under a lease; None: there is none.

    One that is longer than ``size_bytes`` is left: to free blocks takes as long as several writes.
    """
    for name in _spare_names(path.name):
        with contextlib.suppress(OSError):
            info = find(directory, name)
            if info is None or is_longer(info, size_bytes):
                continue
            spare = _claim(directory, name, 0)
            if spare is None:
                continue
            is_free = False
            try:
                is_free = _is_free(spare, path)
                if is_free:
                    return spare, name
                os.unlink(name, dir_fd=directory)
            finally:
                if not is_free:
                    release(spare)
    return None


def keep_spare(directory: int, name: str, current: os.stat_result, owned_name: str) -> None:
    """Give the file that is about to be replaced a second name, if there is one to give.

    The name of the file that replaces it, which may be a spare as well, is taken.

    A file that has a second name already is a copy made by a user, or a writer has died or lost
    after this point; then it is a spare as soon as it is replaced. Two writers that are here at
    once may give it two names, and the writer that takes one removes the other.
    """
    if current.st_nlink != 1:
        return
    for spare_name in _spare_names(name):
        if spare_name == owned_name:
            continue
        with contextlib.suppress(OSError):
            os.link(name, spare_name, src_dir_fd=directory, dst_dir_fd=directory)
            return


def has_long_spares(directory: int, name: str, size_bytes: int) -> bool:
    """Whether a file of so many bytes has spares that it does not use, because they are longer."""
    with contextlib.suppress(OSError):
        found = [find(directory, spare) for spare in _spare_names(name)]
        return any(info is not None and is_longer(info, size_bytes) for info in found)
    return False


def drop_spares(directory: int, name: str, size_bytes: int = -1) -> None:
    """Remove the spares of a file that are longer than this, but for one that is being written."""
    for spare_name in _spare_names(name):
        with contextlib.suppress(OSError):
            info = find(directory, spare_name)
            if info is not None and is_longer(info, size_bytes):
                _remove(directory, spare_name)


def sweep(directory: int) -> None:
    """Remove what dead writers left, as far as this user may."""
    for name in os.listdir(directory):
        spare_of = re.fullmatch(_SPARE_NAME, name)
        if spare_of and find(directory, spare_of[1]):
            continue
        if spare_of or re.fullmatch(_TEMP_NAME, name):
            _remove(directory, name)


def lease(file: int) -> bool:
    """Keep other processes from opening a file; return False if one has, or it cannot be done."""
    if sys.platform != "linux":
        return False
    try:
        # If another process opens it meanwhile, the kernel sends a signal, by default SIGIO, which
        # would end this process. SIGURG is ignored by default.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    return True


def end_lease(file: int) -> None:
    """Let others open a file, if there is a lease on it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def release(descriptor: int) -> None:
    """Unlock and close a file, and end the lease on it."""
    end_lease(descriptor)
    unlock(descriptor)


def unlock(descriptor: int) -> None:
    """Unlock and close a file on which there is no lease.

    Closing alone does not release the lock if a child process was forked meanwhile: it has a copy
    of the descriptor, and would keep the lock for the rest of its life, as it would a lease.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def is_named(directory: int, name: str, descriptor: int) -> bool:
    """Whether a name still means the file that was opened under it."""
    info = find(directory, name)
    return info is not None and os.path.samestat(info, os.fstat(descriptor))


def find(directory: int, name: str) -> os.stat_result | None:
    """Return the metadata of whatever has this name; None: there is nothing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def is_longer(info: os.stat_result, size_bytes: int) -> bool:
    """Whether blocks of a file would be freed if it were cut to so many bytes."""
    return info.st_size > -(-size_bytes // info.st_blksize) * info.st_blksize


def _spare_names(name: str) -> list[str]:
    return [f".bucketq.{name}.{number}.spare" for number in range(_SPARES_MAX)]


def _is_free(spare: int, path: Path) -> bool:
    """Whether a spare can be written to and published; if so, there is a lease on it.

    It must have no other name: that could be a copy that a user made by a hard link, or the
    public one, if a writer died before it replaced the file. And it must look like the file
    that it would replace, so that revoked rights do not come back.
    """
    info = os.fstat(spare)
    current = path.stat(follow_symlinks=False)
    return (
        info.st_nlink == 1
        and not os.path.samestat(info, current)
        and file_permissions.is_alike(info, current)
        and _attributes(spare) == _attributes(path)
        and lease(spare)
    )


def _attributes(file: int | Path) -> dict[str, bytes]:
    """Read the extended attributes of a file, among them the access control list."""
    if sys.platform != "linux":
        return {}
    follows = isinstance(file, int)  # What is open cannot be a link.
    names = os.listxattr(file, follow_symlinks=follows)
    return {name: os.getxattr(file, name, follow_symlinks=follows) for name in names}


def _claim_temp(directory: int, name: str) -> int | None:
    """Open and lock a temporary file that only this user can read; None: take another name.

    One that is there already was left by a dead writer of the same user, or is a trap: another
    user who may write in this directory could keep it open, or have linked it to a file of ours.
    """
    with contextlib.suppress(FileExistsError):
        return _claim(directory, name, os.O_CREAT | os.O_EXCL)
    with contextlib.suppress(FileNotFoundError):
        file = _claim(directory, name, 0)
        if file is None:
            return None
        info = os.fstat(file)
        if info.st_uid == os.geteuid() and info.st_nlink == 1:
            os.fchmod(file, file_permissions.PRIVATE)
            return file
        release(file)
    return None


def _claim(directory: int, name: str, flags: int) -> int | None:
    """Open and lock a hidden file; None means that a living writer has it, or none is there.

    Between opening and locking, its owner may have renamed it into place, or another writer may
    have swept it away. So its name is checked before anything is done to it.
    """
    try:
        # Non-blocking, because its owner may have a lease on it.
        flags |= os.O_RDWR | os.O_NONBLOCK | SAFE
        file = os.open(name, flags, file_permissions.PRIVATE, dir_fd=directory)
    except BlockingIOError:
        return None
    except PermissionError:
        if find(directory, name) is None:
            raise
        return None  # It belongs to another user.
    is_mine = False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_mine = is_named(directory, name, file)
    except BlockingIOError:
        return None
    finally:
        if not is_mine:
            release(file)
    return file if is_mine else None


def _remove(directory: int, name: str) -> None:
    """Remove a hidden file that has no owner."""
    with contextlib.suppress(OSError):
        file = _claim(directory, name, 0)
        if file is not None:
            try:
                os.unlink(name, dir_fd=directory)
            finally:
                release(file)

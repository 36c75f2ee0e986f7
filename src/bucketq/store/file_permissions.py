"""Which users may use the files of a queue: owner, group and mode.

A new file is private (0600), whatever the umask. One that replaces another gets its owner, group
and mode, and other files of a queue get those of the queue's file. Only root can keep the owner,
and only members the group; if one cannot be kept, permissions are narrowed, never widened.

Changes only the descriptors it is given.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

PRIVATE = 0o600
PRIVATE_DIRECTORY = 0o700


def regular_file(path: Path | None) -> os.stat_result | None:
    """Return the metadata of a file whose permissions are to be copied; None: there is none."""
    if path is None:
        return None
    try:
        info = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return info if stat.S_ISREG(info.st_mode) else None


def copy_to_file(file: int, model: os.stat_result) -> None:
    """Give a file the owner, group and mode of another.

    The owner matters when root writes: the user would be locked out of a file of root's.
    """
    info = os.fstat(file)
    if is_alike(info, model):
        return
    mode = _copy_owner(file, model, stat.S_IMODE(model.st_mode))
    if stat.S_IMODE(os.fstat(file).st_mode) != mode:
        os.fchmod(file, mode)


def is_alike(info: os.stat_result, model: os.stat_result) -> bool:
    """Whether two files have the same owner, group and mode."""
    return (info.st_mode, info.st_uid, info.st_gid) == (model.st_mode, model.st_uid, model.st_gid)


def copy_to_directory(directory: int, model: os.stat_result) -> None:
    """Let users list a directory if they may read a file, and add to it if they may write it."""
    mode = _copy_owner(directory, model, stat.S_IMODE(model.st_mode) & 0o777)
    searchable = (mode & 0o444) >> 2
    inherited = os.fstat(directory).st_mode & stat.S_ISGID
    os.fchmod(directory, PRIVATE_DIRECTORY | mode | searchable | inherited)


def share_lock(lock: int, directory: int) -> None:
    """Let every user that may write in a directory take its lock, and no others.

    A user that may open a lock file can block all writers. Permissions are only added, because
    another user may need what this one does not.
    """
    folder, info = os.fstat(directory), os.fstat(lock)
    writers = folder.st_mode & 0o022
    mode = stat.S_IMODE(info.st_mode)
    wanted = mode | PRIVATE | writers | writers << 1
    with contextlib.suppress(OSError):
        if info.st_uid != folder.st_uid and os.geteuid() == 0:
            os.fchown(lock, folder.st_uid, folder.st_gid)
        elif writers & stat.S_IWGRP and info.st_gid != folder.st_gid:
            os.fchown(lock, -1, folder.st_gid)
        if wanted != mode:
            os.fchmod(lock, wanted)


def _copy_owner(descriptor: int, model: os.stat_result, mode: int) -> int:
    """Copy owner and group, as far as this user may; return the mode to set.

    If the group cannot be kept, the members of the file's own group get what all users have.
    """
    info = os.fstat(descriptor)
    if (info.st_uid, info.st_gid) == (model.st_uid, model.st_gid):
        return mode
    for owner in (model.st_uid, -1):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, owner, model.st_gid)
            return mode
    if info.st_gid == model.st_gid:
        return mode
    return mode & ~0o070 | (mode & 0o007) << 3

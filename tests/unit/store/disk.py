"""A disk whose directories can fail to sync, and that knows which renames it could still lose.

The data of files reaches this disk as soon as it is synced, as on any other. It may lose only
names: those given or taken away by a rename or an unlink since the last sync of their directory.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

import pytest


class Disk:
    """Watches renames, unlinks and the syncs of directories in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures_left = 0
        """How many of the next directory syncs fail; -1: all of them."""
        self.code = errno.EIO
        self.synced: list[int] = []
        """The inodes of the directories that were synced, in order."""
        self._unsynced: dict[int, str] = {}
        self._fsync, self._rename, self._unlink = os.fsync, os.rename, os.unlink
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "rename", self.rename)
        monkeypatch.setattr(os, "unlink", self.unlink)

    @property
    def may_lose(self) -> list[str]:
        """The names that are not as they are on the disk yet, hidden ones aside."""
        return sorted(self._unsynced.values())

    def fsync(self, descriptor: int) -> None:
        info = os.fstat(descriptor)
        if stat.S_ISDIR(info.st_mode):
            if self.failures_left:
                self.failures_left -= self.failures_left > 0
                raise OSError(self.code, os.strerror(self.code))
            self.synced.append(info.st_ino)
            self._unsynced.pop(info.st_ino, None)
        self._fsync(descriptor)

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self._rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._unsynced[os.fstat(dst_dir_fd).st_ino] = target

    def unlink(self, name: Any, *, dir_fd: int | None = None) -> None:
        self._unlink(name, dir_fd=dir_fd)
        if dir_fd is not None and not str(name).startswith(".bucketq."):
            self._unsynced[os.fstat(dir_fd).st_ino] = name

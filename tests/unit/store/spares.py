"""A file that is replaced again and again, and its old versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bucketq.store import atomic_file, owned_file
from bucketq.store.local import LocalStore

KEY = "queue.json"
SPARES = [f".bucketq.{KEY}.0.spare", f".bucketq.{KEY}.1.spare"]


class Versions:
    """A file that is replaced as a queue is: each time in place of the version before."""

    def __init__(self, store: LocalStore, path: Path) -> None:
        self._store = store
        self._etag = ""
        self.path = path

    async def begin(self, body: bytes) -> int:
        self._etag = await self._store.create(self.path.name, body)
        return self.inode()

    async def go_on(self, *bodies: bytes) -> int:
        """Write some versions; return the inode of the last."""
        for body in bodies:
            self._etag = await self._store.replace(self.path.name, body, self._etag)
            assert (await self._store.get(self.path.name)).body == body
        return self.inode()

    def inode(self) -> int:
        return self.path.stat().st_ino

    def spares(self) -> list[Path]:
        return sorted(self.path.parent.glob(".bucketq.*.spare"))

    def _sizes(self) -> list[int]:
        sizes = []
        for path in self.spares():
            with suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        return sizes

    async def until(self, is_right: Callable[[list[int]], bool]) -> None:
        """Wait until the sizes of the spares are right: they are removed in the background."""
        async with asyncio.timeout(60):
            while not is_right(self._sizes()):  # noqa: ASYNC110 - a thread removes them
                await asyncio.sleep(0.001)


def during_fill(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Do something each time when a file has been filled, but before it has its name."""
    fill = atomic_file._fill

    def acting_fill(file: int, body: bytes) -> None:
        fill(file, body)
        act(file)

    monkeypatch.setattr(atomic_file, "_fill", acting_fill)


def note_taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str] | None]:
    """The spares that writes use from now on, or None for each that finds none."""
    taken = []
    take = owned_file.take_spare

    def noting_take(directory: int, path: Path, size_bytes: int) -> tuple[int, str] | None:
        taken.append(take(directory, path, size_bytes))
        return taken[-1]

    monkeypatch.setattr(owned_file, "take_spare", noting_take)
    return taken


def visible_names(folder: Path) -> set[str]:
    """What is in a directory, but for the lock and the spares."""
    names = {path.name for path in folder.iterdir() if path.suffix != ".spare"}
    return names - {".bucketq.lock"}

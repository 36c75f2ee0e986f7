"""A store in a directory of this machine: every object is a plain file that ``cat`` can print.

Guarantees: keys stay below the root; errors of the operating system are raised as errors that say
what to do; blocking I/O runs in the store's own threads, so that a slow disk delays neither the
event loop nor its default executor. ``atomic_file`` promises that writes are whole, atomic and
durable, and that reads are durable too.

After a sync that failed, every further call raises ``NotDurableError``: the disk may have lost what
this process has seen, and nothing that it could read or sync would prove the contrary.

Reads and writes only files below its root.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from bucketq.errors import (
    BucketQError,
    ClosedError,
    InvalidRequestError,
    NotDurableError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.store import atomic_file
from bucketq.store.base import (
    FolderListing,
    LockHeldError,
    ObjectInfo,
    ObjectMissingError,
    PreconditionFailedError,
    StoredObject,
    check_range,
    too_short,
)
from bucketq.store.directories import LOCK_NAME, HeldError, UnsyncedError
from bucketq.tracing import storage_span

_T = TypeVar("_T")
_Entries = list[str | ObjectInfo]

_READS = frozenset({"read", "list"})
_THREADS_MAX = 8  # Further calls wait for a thread, as they would wait for the disk.
_DURABLE_MAX = 1000  # A version that was forgotten is synced once more; an archive has many files.

# The errors after which trying again cannot help, and what to do instead. Any other one
# (EIO, EMFILE, ESTALE, ...) may pass, and after a write leaves the outcome unknown.
_ADVICE = {
    errno.ENOENT: "its directory is gone; make it again",
    errno.ENOSPC: "free some space on this filesystem",
    errno.EDQUOT: "free some space, or raise the disk quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "mount the filesystem writable, or use another directory",
    errno.EACCES: "give this user permission to use the file and to write in its directory",
    errno.EPERM: "give this user permission to use the file and to write in its directory",
    errno.EISDIR: "name a file in it instead",
    errno.ENOTDIR: "something above it in the path is a file; use another directory",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ELOOP: "it is a symbolic link, which a write would replace; name its target instead",
    errno.ENXIO: "it is not a regular file; name another one",
    errno.EILSEQ: "the filesystem does not take this name; use another one",
    errno.EINVAL: "the filesystem does not support it; use another directory",
    errno.ENOLCK: "the filesystem has no file locks; use a directory on a local disk",
    errno.EOPNOTSUPP: "the filesystem has no file locks; use a directory on a local disk",
}

# What reading requires.
_READING = {
    "read": "give this user permission to read the file and its directory",
    "list": "give this user permission to read the directory",
}


class LocalStore:
    """An ``ObjectStore`` whose objects are the files below one directory.

    A cancelled call leaves its thread to finish alone, unless that waits for a lock. Its write may
    still land, as with any store; no lock and no torn file are left behind.
    """

    write_interval_s = 0.0

    def __init__(self, root: Path, *, like: str | None = None) -> None:
        """Keep objects below ``root``; new ones get the mode of the object ``like``, if any."""
        self._root = root.absolute()
        self.url = self._root.as_uri()
        # The paths of objects that are replaced. They are few, and to make one takes 5 us.
        self._replaced: dict[str, Path] = {}
        self._like = None if like is None else self._path(like)
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="bucketq-file")
        # Folders in which this store has written before.
        self._used: set[str] = set()
        # The version of each object that this store last knew to be on the disk.
        self._durable: dict[str, str] = {}
        # The first sync that failed, as a message; set by the thread that saw it.
        self._failure: str | None = None
        self._closed = False

    async def get(self, key: str) -> StoredObject:
        """Read an object. Raises ``ObjectMissingError``."""
        body, etag = await self._read(key, None)
        assert body is not None  # noqa: S101 - only a known etag goes without its bytes
        return StoredObject(body, etag)

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read the object if its etag differs; return None if it is unchanged."""
        body, current_etag = await self._read(key, etag)
        return None if body is None else StoredObject(body, current_etag)

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        check_range(offset, length)
        body, _ = await self._read(key, None, (offset, length))
        if body is None or len(body) != length:
            raise too_short(key, self.url, offset, length)
        return body

    async def create(self, key: str, body: bytes) -> str:
        """Write an object that must not exist yet; return its etag."""

        def demand_absent(current: os.stat_result | None) -> None:
            if current is not None:
                raise PreconditionFailedError(f"{key} already exists in {self.url}")

        return await self._write(key, body, demand_absent, makes_parents=True)

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object that must still have ``etag``; return its new one."""

        def demand_etag(current: os.stat_result | None) -> None:
            if current is None:
                raise ObjectMissingError(f"there is no object {key} in {self.url}")
            if (found := atomic_file.etag_of(current)) != etag:
                raise PreconditionFailedError(
                    f"{key} in {self.url} has changed: its etag is {found}, not {etag}"
                )

        # A queue is replaced again and again, an object that is put hardly ever.
        if key not in self._replaced:
            self._replaced[key] = self._path(key)
        return await self._write(key, body, demand_etag, makes_parents=False, recycles=True)

    async def put(self, key: str, body: bytes) -> str:
        """Write an object whatever is there; return its etag."""
        return await self._write(key, body, lambda _: None, makes_parents=True)

    async def delete(self, key: str) -> None:
        """Delete an object. Does nothing if it does not exist."""
        path, given_up = self._path(key), Event()
        delete = partial(atomic_file.delete, path, given_up)
        await self._run("delete", path, delete, given_up)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List the objects whose keys begin with ``prefix``, in order of their keys.

        Each directory is read when its turn comes, so a listing that is given up early has
        not walked the whole tree.
        """
        folder = prefix[: prefix.rfind("/") + 1]
        if folder:
            check_key(folder[:-1])
        pending: _Entries = [folder]
        while pending:
            entry = pending.pop()
            if isinstance(entry, ObjectInfo):
                yield entry
            else:
                scan = partial(_scan, self._root, entry, prefix)
                pending.extend(reversed(await self._run("list", self._root / entry, scan)))

    async def list_folder(self, folder: str) -> FolderListing:
        """List what is directly in a folder: objects, and folders."""
        if folder:
            check_key(folder[:-1])
        scan = partial(_scan, self._root, folder, folder)
        entries = await self._run("list", self._root / folder, scan)
        objects = [entry for entry in entries if isinstance(entry, ObjectInfo)]
        return FolderListing(objects, [entry for entry in entries if isinstance(entry, str)])

    async def close(self) -> None:
        """Let the threads end once they are idle. Calls that are under way still finish."""
        self._closed = True
        self._threads.shutdown(wait=False)

    async def _read(
        self, key: str, known_etag: str | None, part: tuple[int, int] | None = None
    ) -> tuple[bytes | None, str]:
        path = self._path(key)
        read = partial(atomic_file.read, path, known_etag, self._durable.get(key), part)
        try:
            body, etag = await self._run("read", path, read)
        except FileNotFoundError as error:
            raise ObjectMissingError(f"there is no object {key} in {self.url}") from error
        self._note_durable(key, etag)
        return body, etag

    async def _write(
        self,
        key: str,
        body: bytes,
        demand: atomic_file.Demand,
        *,
        makes_parents: bool,
        recycles: bool = False,
    ) -> str:
        path, given_up = self._path(key), Event()
        folder = key[: key.rfind("/") + 1]
        write = partial(
            atomic_file.write,
            path,
            body,
            demand,
            makes_parents=makes_parents,
            is_first=folder not in self._used,
            given_up=given_up,
            like=self._like,
            recycles=recycles,
            durable_etag=self._durable.get(key),
        )
        etag, has_outgrown = await self._run("write", path, write, given_up)
        self._used.add(folder)
        self._note_durable(key, etag)
        if has_outgrown and not self._closed:
            # To free blocks can take longer than a write, so no write waits for it.
            self._threads.submit(atomic_file.drop_long_spares, path, len(body))
        return etag

    def _note_durable(self, key: str, etag: str) -> None:
        if len(self._durable) >= _DURABLE_MAX and key not in self._durable:
            self._durable.clear()
        self._durable[key] = etag

    def _path(self, key: str) -> Path:
        """Return the path of an object, after checking that its key stays below the root."""
        path = self._replaced.get(key)
        if path is None:
            check_key(key)
            path = self._root / key
        return path

    async def _run(
        self, verb: str, path: Path, work: Callable[[], _T], given_up: Event | None = None
    ) -> _T:
        """Do blocking work in a thread of this store; signal it if the caller is cancelled."""
        if self._closed:
            raise ClosedError(f"the store {self.url} is closed; open it again")
        self._demand_synced()
        watched = partial(self._watch, path, work)
        loop = asyncio.get_running_loop()
        try:
            with storage_span(verb, self.url, path.name):
                result = await loop.run_in_executor(self._threads, watched)
        except asyncio.CancelledError:
            if given_up is not None:
                given_up.set()
            raise
        except OSError as error:
            if verb == "read" and isinstance(error, FileNotFoundError):
                raise
            raise _explain(error, verb, path) from error
        # Another thread's sync may have failed meanwhile, and this one's have proved nothing.
        self._demand_synced()
        return result

    def _watch(self, path: Path, work: Callable[[], _T]) -> _T:
        """Do work in a thread; record a failed sync even if the caller was cancelled."""
        try:
            return work()
        except UnsyncedError as error:
            reason = (error.strerror or str(error)).lower()
            self._failure = self._failure or (
                f"cannot sync {path}: {reason}; what was last written there may be lost when the "
                "power fails, so this process does not use it any more: check the disk "
                "(`dmesg` may say what failed), then connect again"
            )
            raise NotDurableError(self._failure) from error

    def _demand_synced(self) -> None:
        if self._failure is not None:
            raise NotDurableError(self._failure)


def check_key(key: str) -> None:
    """Refuse a key that is not the relative path of a file below the root."""
    if not all(_is_key_part(part) for part in key.split("/")):
        raise InvalidRequestError(
            f"{key!r} cannot name a file: a key is a relative path, without empty parts, '.', "
            "'..', backslashes and NUL, and without names that begin with '.bucketq.'"
        )


def _is_key_part(part: str) -> bool:
    """Whether a file of this name can be an object, or a directory can hold objects."""
    if part in {"", ".", ".."} or "\\" in part or "\0" in part or atomic_file.is_reserved(part):
        return False
    # A name that is not valid text has no key: it could be listed, but not encoded.
    return not any("\ud800" <= character <= "\udfff" for character in part)


def _explain(error: OSError, verb: str, path: Path) -> BucketQError:
    """Say what to do about an error of the operating system, and whether it is final."""
    if isinstance(error, HeldError):
        return _explain_lock(error, verb, path)
    what = f"cannot {verb} {path}: {(error.strerror or str(error)).lower()}"
    advice = _ADVICE.get(error.errno or 0)
    if isinstance(error, PermissionError) and verb in _READING:
        advice = _READING[verb]
    if advice is None:
        outcome = "try again" if verb in _READS else "the outcome is unknown, try again"
        return UnavailableError(f"{what}; {outcome}")
    return StoreRefusedError(f"{what}; {advice}")


def _explain_lock(error: HeldError, verb: str, path: Path) -> LockHeldError:
    """Say which process holds the lock of a directory, and how to make it release it."""
    lock, holder = path.parent / LOCK_NAME, error.holder
    if holder is None:
        who = f"another process holds the lock {lock}; `lslocks` shows which"
        advice = "continue it if it is stopped (`kill -CONT`), or end it (`kill -KILL`)"
    elif holder.is_stopped:
        who = f"process {holder.pid}, which is stopped, holds the lock {lock}"
        advice = f"continue it (`kill -CONT {holder.pid}`) or end it (`kill -KILL {holder.pid}`)"
    else:
        who = f"process {holder.pid} holds the lock {lock} and does not release it"
        advice = f"wait for it, or end it (`kill -KILL {holder.pid}`)"
    return LockHeldError(f"cannot {verb} {path}: {who}; {advice}")


def _scan(root: Path, folder: str, prefix: str) -> _Entries:
    """Read one directory: objects as they are, directories as keys that end in a slash.

    A directory is ordered as if the slash belonged to its name, because it does in the keys
    below it: ``a-b`` comes before ``a/b``, and ``a/b`` before ``a0``.
    """
    found: list[tuple[str, str | ObjectInfo]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(root / folder) as entries:
        for entry in entries:
            key = folder + entry.name
            if not _is_key_part(entry.name):
                continue
            if entry.is_dir():
                if f"{key}/".startswith(prefix):
                    found.append((f"{key}/", f"{key}/"))
            elif key.startswith(prefix) and (info := _regular_file(entry)):
                modified_at = datetime.fromtimestamp(info.st_mtime, UTC)
                found.append((key, ObjectInfo(key, info.st_size, modified_at)))
    found.sort(key=lambda item: item[0])
    return [item for _, item in found]


def _regular_file(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the metadata of a file in a directory; None if it is not a file or was removed."""
    try:
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return info if stat.S_ISREG(info.st_mode) else None

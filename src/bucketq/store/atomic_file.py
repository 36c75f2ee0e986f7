"""Files that are replaced whole or not at all, by one of many processes at a time.

This part of the file store writes, renames and syncs files in the right order. It raises
``OSError``: what an error means to the caller, and what a key is, is up to ``local``.

Guarantees:

* A write is whole or has not happened, for every reader, in every process, through
  ``SIGKILL`` and power loss. How is explained below.
* What a read returns is durable, like what a write has put in place. Its writer may have died
  between the rename and the sync, so the reader syncs it too, unless its caller knows that this
  version has been synced.
* Compare and rename are one step between all processes: they happen under ``flock`` on
  ``.bucketq.lock`` in the file's directory. That one is never unlinked and never renamed,
  because a lock on a file that can be replaced locks nothing.
* An etag never names two contents of one path. See ``_stamp``.
* A stopped process blocks no reader, and hardly ever a writer. All that can be done without
  the lock is done without it; what is left is to check once more and to rename, some tens of
  microseconds. Under a lock around the whole write, a broker that is suspended under load
  would nearly always hold it. One that is suspended in just that moment still does, and no other
  can take its place until it resumes or is killed, which releases every lock.

A write fills a hidden file in the same directory, which it owns (see ``owned_file``), and
syncs it. It gives the file that is there a second, hidden name and, under the lock, renames
its own over the first. Then it syncs the directory, and only then returns. So the name means
a file whose bytes are all on the disk, whenever the power fails, as long as no process changes a
file to which the name on the disk still points. Two rules ensure that:

* A file that has taken its name is not written to again, before another one has its name on
  the disk as well. Between the rename and the sync of the directory memory and disk differ:
  the file that was replaced has lost its name in the one and not yet in the other. A writer
  may overwrite it only if the directory has been synced since, or syncs it first.
* No process may have it open then, and it may have no other name.

Reads and writes only the file it is asked for, its directory, and the names that ``is_reserved``
accepts, which are its own. Network filesystems are not supported: their locks and renames
promise less.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from threading import Event

try:
    import fcntl
except ImportError as missing:
    raise ImportError(
        "file:// queues need the file locks of a POSIX system (fcntl), which this one lacks; "
        "keep the queue on object storage instead"
    ) from missing

from bucketq.store import directories, file_permissions, owned_file
from bucketq.store.directories import UnsyncedError

Demand = Callable[[os.stat_result | None], None]
"""Raises unless the file that is there, or None, is one that may be replaced."""

_LOOKS_MAX = 100  # A file that is replaced again and again between two system calls is a fault.
_STAMP_STEP_NS_MAX = 1 << 36  # About a minute: no filesystem keeps times more coarsely.

# What is the same if a file was not replaced and its owner and permissions were not changed.
_version = attrgetter("st_mtime_ns", "st_ino", "st_size", "st_mode", "st_uid", "st_gid")


def is_reserved(name: str) -> bool:
    """Whether a file name belongs to this module, and so to no object."""
    return name.startswith(".bucketq.")


def etag_of(info: os.stat_result) -> str:
    """Return the etag of a version; ``_stamp`` says why no other version has it."""
    return f"{info.st_mtime_ns:x}-{info.st_ino:x}-{info.st_size:x}"


def read(
    path: Path,
    known_etag: str | None,
    durable_etag: str | None = None,
    part: tuple[int, int] | None = None,
) -> tuple[bytes | None, str]:
    """Read a file and its etag; the bytes are None if the etag is the known one.

    With a part, an offset and a length, only those bytes are read: fewer if the file ends earlier.

    It takes no lock, because a file that any process has open is never written to: the one that was
    opened stays whole, whatever replaces it meanwhile. The durable etag is that of a version that
    the caller knows to be on the disk under its name; any other is synced before it is returned.
    """
    for _ in range(_LOOKS_MAX):
        if found := _read_named(path, known_etag, durable_etag, part):
            return found
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _read_named(
    path: Path, known_etag: str | None, durable_etag: str | None, part: tuple[int, int] | None
) -> tuple[bytes | None, str] | None:
    """Read a file; None means that it was replaced while it was being opened.

    Between the two halves of opening, looking up the name and counting as a reader, the file
    can become a spare and be written to. Then either the open is refused, or the second look
    finds another file. One that has the name when it is open already stays as it is.
    """
    try:
        # Non-blocking, because opening a pipe would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | owned_file.SAFE)
    except BlockingIOError:
        return None
    try:
        info = os.fstat(descriptor)
        _demand_regular(info)
        etag = etag_of(info)
        body: bytes | None = None
        if etag != known_etag:
            named = path.stat(follow_symlinks=False)
            if not os.path.samestat(info, named):
                return None
            body = _read_bytes(descriptor, part)
            etag = etag_of(named)
        if etag != durable_etag:
            _make_durable(descriptor, path)
        return body, etag
    finally:
        os.close(descriptor)


def _read_bytes(descriptor: int, part: tuple[int, int] | None) -> bytes:
    """Read an open file, or a part of it."""
    if part is None:
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.read()
    offset, length = part
    body = bytearray()
    # A system call may return less than it was asked for; only nothing is the end of the file.
    while len(body) < length:
        more = os.pread(descriptor, length - len(body), offset + len(body))
        if not more:
            break
        body += more
    return bytes(body)


def _make_durable(file: int, path: Path) -> None:
    """Sync a file that was found under its name, and that name.

    The data of a file that bucketq wrote is on the disk already. Syncing it again costs little,
    and one that was copied into place by hand needs it.

    A user who may read the file need not be allowed to open its directory. The name is made
    durable together with the whole filesystem then: returning it unsynced would break the
    promise that what is read is durable.
    """
    try:
        _sync_file(file)
    except OSError as error:
        raise UnsyncedError(error.errno, error.strerror) from error
    try:
        with directories.opened(path.parent) as directory:
            if directory is not None:
                directories.sync(directory)
    except PermissionError as refusal:
        try:
            directories.sync_filesystem(file)
        except NotImplementedError:
            raise refusal from None


def write(
    path: Path,
    body: bytes,
    demand: Demand,
    *,
    makes_parents: bool,
    is_first: bool,
    given_up: Event,
    like: Path | None = None,
    recycles: bool = False,
    durable_etag: str | None = None,
) -> tuple[str, bool]:
    """Put a file in place, if what is there meets the demand.

    Return its etag, and whether to call ``drop_long_spares``, at any time.

    The demand is checked three times. Only the last check, under the lock, counts; the others
    save the disk the work of a writer that has already lost. The file is prepared to replace
    what the second check finds, and under the lock once more if the last one finds another.

    The first write of a process in a directory cleans up behind dead writers, and makes the
    directory itself durable if it may have been made for this. A write that recycles uses spares,
    and leaves one. The durable etag is that of a version that the caller knows to be on the disk
    under its name. Once the caller has given up, the lock is not waited for any longer. A new file
    takes owner, group and mode of ``like``, if that is there, and is private otherwise.
    """
    model = file_permissions.regular_file(like) if makes_parents else None
    name = path.name
    with directories.opened(path.parent, makes=makes_parents, like=model) as directory:
        if directory is None:
            demand(None)
            raise FileNotFoundError(errno.ENOENT, "no such directory")
        current = _find(directory, name)
        demand(current)
        if is_first:
            owned_file.sweep(directory)
            if makes_parents:
                directories.sync_above(path.parent)
        recycles = recycles and current is not None
        spare = owned_file.take_spare(directory, path, len(body)) if recycles else None
        with owned_file.owned(directory, spare) as (file, hidden_name):
            if spare is not None and not _is_at(directory, name, durable_etag):
                directories.sync(directory)
            # What cannot be leased now could not be later, as a spare.
            can_recycle = recycles and (spare is not None or owned_file.lease(file))
            _fill(file, body)
            if can_recycle:
                owned_file.end_lease(file)
            current = _find(directory, name)
            demand(current)
            _demand_writable(directory, name, current)
            if current is None and model is not None:
                file_permissions.copy_to_file(file, model)
            etag = "" if current is None else _stamp(file, directory, current)
            if can_recycle and current is not None:
                owned_file.keep_spare(directory, name, current, hidden_name)
            with directories.locked(directory, given_up):
                found = _find(directory, name)
                demand(found)
                if found is None or current is None or _version(found) != _version(current):
                    _demand_writable(directory, name, found)
                    etag = _stamp(file, directory, found)
                if not owned_file.is_named(directory, hidden_name, file):
                    raise FileNotFoundError(
                        errno.ENOENT, f"another process has removed {hidden_name}"
                    )
                os.rename(hidden_name, name, src_dir_fd=directory, dst_dir_fd=directory)
        directories.sync(directory)
        has_outgrown = recycles and _has_outgrown(directory, name, spare, current, len(body))
    return etag, has_outgrown


def _has_outgrown(
    directory: int,
    name: str,
    spare: tuple[int, str] | None,
    replaced: os.stat_result | None,
    size_bytes: int,
) -> bool:
    """Whether a file of so many bytes has spares that it does not use, because they are longer.

    After a spare was used, the only one there is the file that was replaced.
    """
    if spare is not None and replaced is not None:
        return owned_file.is_longer(replaced, size_bytes)
    return owned_file.has_long_spares(directory, name, size_bytes)


def drop_long_spares(path: Path, size_bytes: int) -> None:
    """Remove what a file of so many bytes has left of longer versions."""
    with directories.opened(path.parent) as directory:
        if directory is not None:
            owned_file.drop_spares(directory, path.name, size_bytes)


def delete(path: Path, given_up: Event) -> None:
    """Remove a file, if it is there, and keep its time for its successor.

    The directory is synced even if the file is gone already: another process may have removed it
    and died before it synced that.
    """
    with directories.opened(path.parent) as directory:
        if directory is None:
            return
        if _find(directory, path.name) is not None:
            with directories.locked(directory, given_up) as lock:
                _unlink(directory, path.name, lock)
        directories.sync(directory)


def _unlink(directory: int, name: str, lock: int) -> None:
    """Remove a file and its spares, under the lock."""
    current = _find(directory, name)
    if current is None:
        return
    time_ns = max(current.st_mtime_ns, os.fstat(lock).st_mtime_ns)
    # Only the owner of the lock file may set its time. If that is another user,
    # a successor's etag depends on the clock and the inode alone.
    with contextlib.suppress(PermissionError):
        _set_time(lock, time_ns)
    os.unlink(name, dir_fd=directory)
    owned_file.drop_spares(directory, name)


def _find(directory: int, name: str) -> os.stat_result | None:
    """Return the metadata of the file of this name; None: there is none."""
    info = owned_file.find(directory, name)
    if info is not None:
        _demand_regular(info)
    return info


def _is_at(directory: int, name: str, etag: str | None) -> bool:
    """Whether a name still means the version with an etag."""
    current = _find(directory, name)
    return current is not None and etag_of(current) == etag


def _demand_writable(directory: int, name: str, current: os.stat_result | None) -> None:
    """Refuse a file that its owner has made read-only: a rename would replace it."""
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


def _fill(temp: int, body: bytes) -> None:
    """Write the bytes and sync them to the disk.

    What a spare has beyond its new end is cut off last, because blocks that are overwritten need
    not be freed and allocated again.

    After a failed sync the kernel forgets what it could not write, and the next one succeeds.
    So a sync is never tried twice: the file is thrown away.
    """
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(temp, rest) :]
    if os.fstat(temp).st_size > len(body):
        os.ftruncate(temp, len(body))
    _sync_file(temp)


def _sync_file(file: int) -> None:
    """Sync the bytes of a file to the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # There, fsync leaves it in the disk's cache.
    else:
        os.fdatasync(file)  # With the size; the times follow with the directory.


def _stamp(temp: int, directory: int, current: os.stat_result | None) -> str:
    """Give a file the permissions of the one that it replaces, and a later time.

    The etag is made of time, inode and size, since the bytes themselves must stay plain JSON.
    None of these alone distinguishes two versions: clocks tick every 4 ms or jump back, freed
    inodes are used again at once, and sizes repeat. So time is made a generation that rises
    strictly from each version to the next, and, through the time of the lock file, also from
    a deleted one to its successor.

    Syncing the directory later makes this durable too; if it is lost with the power, no
    process is left that knows the lost etag.
    """
    lock = _find(directory, directories.LOCK_NAME)
    floor_ns = 0 if lock is None else lock.st_mtime_ns
    if current is not None:
        floor_ns = max(floor_ns, current.st_mtime_ns)
        file_permissions.copy_to_file(temp, current)
    step_ns = 1
    while (info := os.fstat(temp)).st_mtime_ns <= floor_ns:
        if step_ns > _STAMP_STEP_NS_MAX:
            raise OSError(errno.EINVAL, "the file cannot be given a later time than it has")
        _set_time(temp, floor_ns + step_ns)
        step_ns *= 2  # Doubled, because a filesystem may round it.
    return etag_of(info)


def _set_time(descriptor: int, time_ns: int) -> None:
    os.utime(descriptor, ns=(time_ns, time_ns))

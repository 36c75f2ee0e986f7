"""Writes files for the user atomically, and overwrites none unless asked to."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bucketq.errors import InvalidRequestError, RejectedError, StoreRefusedError
from bucketq.store import file_permissions


def write_file(path: Path, chunks: Iterable[bytes], *, overwrite: bool) -> None:
    """Write pieces to a file and sync it, so that it is complete or does not exist."""
    folder = path.absolute().parent
    try:
        handle, temp_name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=folder)
        temp = Path(temp_name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(chunks)
                file.flush()
                if overwrite:
                    _keep_rights(file.fileno(), path)
                os.fsync(file.fileno())
            if overwrite:
                temp.replace(path)
            else:
                path.hardlink_to(temp)
            _sync(folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temp.unlink()
    except FileExistsError:
        raise RejectedError(f"{path} already exists; name another file, or use --force") from None
    except IsADirectoryError:
        raise InvalidRequestError(f"{path} is a directory; name a file in it") from None
    except OSError as error:
        message = f"cannot write {path}: {(error.strerror or str(error)).lower()}"
        raise StoreRefusedError(message) from None


def _keep_rights(file: int, path: Path) -> None:
    """Give a new file the permissions of the one it replaces; otherwise it is private."""
    if (replaced := file_permissions.regular_file(path)) is not None:
        file_permissions.copy_to_file(file, replaced)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

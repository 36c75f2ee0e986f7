"""``PayloadCopy``: the content of a large payload, so that another job can be pushed with it.

No two jobs name one side object, so a job that is pushed again gets a copy.
"""

from __future__ import annotations

from tempfile import SpooledTemporaryFile
from typing import Any, cast

from msgspec import Raw

from bucketq.model.records import Encoding
from bucketq.model.side_objects import encoding_inside
from bucketq.queue.large.side_content import FilePayload

_IN_MEMORY_BYTES = 16 * 1024 * 1024
"""More than that is in a temporary file, as far as it is not JSON."""


class PayloadCopy:
    """Collects the chunks of a payload. Close it when the job is pushed."""

    def __init__(self, encoding: Encoding | None) -> None:
        """Collect a payload that has this encoding in its job."""
        self._is_json = encoding_inside(encoding) is None
        self._file: Any = SpooledTemporaryFile(0 if self._is_json else _IN_MEMORY_BYTES)  # noqa: SIM115

    def add(self, chunk: bytes) -> None:
        """Add a chunk."""
        self._file.write(chunk)

    def payload(self) -> Raw | FilePayload:
        """Return what to push: JSON as it is, or a file."""
        self._file.seek(0)
        return Raw(self._file.read()) if self._is_json else cast("FilePayload", self._file)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

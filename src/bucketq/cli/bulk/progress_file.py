"""The progress of a bulk push, in a small file, so that the command can be resumed.

The file is written before each batch: *done* has certainly been pushed, *pending* is being pushed,
and a later run finds out whether it was. It is replaced atomically and synced, so that a kill at
any time leaves a correct file.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from bucketq.cli.bulk.feeds import Mark
from bucketq.cli.file_writing import write_file
from bucketq.clock import Clock
from bucketq.errors import InvalidRequestError

SUFFIX = ".bucketq-progress"


class ProgressRecord(Struct, kw_only=True):
    """The content of the file."""

    source: str
    """The digest of the feed."""
    target: str
    """The address of the queue."""
    incarnation: str
    options: str = ""
    restarts: int = 0
    done: Mark = Mark()
    pending: Mark | None = None
    began_at: datetime | None = None
    """When the pending batch was begun."""
    finished_at: datetime | None = None


class ProgressFile:
    """The progress of one feed into one queue; without a path it is kept in memory only."""

    def __init__(self, path: Path | None, record: ProgressRecord, clock: Clock) -> None:
        self.path = path
        self.record = record
        self._clock = clock

    def begin(self, end: Mark) -> None:
        """Record that the jobs up to a mark are about to be pushed."""
        self.record.pending = end
        self.record.began_at = self._clock.now()
        self.write()

    def settle(self, end: Mark) -> None:
        """Record that they were pushed. It is written with the next batch, or at the end."""
        self.record.done, self.record.pending = end, None

    def finish(self) -> None:
        """Record that everything was pushed."""
        self.record.finished_at = self._clock.now()
        self.write()

    def write(self) -> None:
        """Write the file, if there is one."""
        if self.path is not None:
            body = msgspec.json.format(msgspec.json.encode(self.record), indent=1)
            write_file(self.path, [body + b"\n"], overwrite=True)


def read_record(path: Path) -> ProgressRecord | None:
    """Read the file; None if it does not exist."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProgressRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        message = f"{path} is not a progress file: {error}; remove it, or use --progress"
        raise InvalidRequestError(message) from None

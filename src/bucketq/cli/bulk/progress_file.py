"""How far a feed has been pushed, in a small file, so that a command can be run again.

The file is written before each batch: what is *done* has certainly been pushed, what is *pending*
is being pushed, and whether it was is found out by whoever goes on. It is written whole and synced,
so that a kill at any moment leaves a true one.
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


class Record(Struct, kw_only=True):
    """What the file holds."""

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


class Progress:
    """The progress of one feed into one queue; without a path it is kept in memory alone."""

    def __init__(self, path: Path | None, record: Record, clock: Clock) -> None:
        """Begin with a record, new or read from the file."""
        self.path = path
        self.record = record
        self._clock = clock

    def begin(self, end: Mark) -> None:
        """Note that the jobs up to a mark are about to be pushed."""
        self.record.pending = end
        self.record.began_at = self._clock.now()
        self._write()

    def settle(self, end: Mark) -> None:
        """Note that they were. It is written with the next batch, or at the end."""
        self.record.done, self.record.pending = end, None

    def stop(self) -> None:
        """Write down what is done."""
        self._write()

    def finish(self) -> None:
        """Note that all is done."""
        self.record.finished_at = self._clock.now()
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            body = msgspec.json.format(msgspec.json.encode(self.record), indent=1)
            write_file(self.path, body + b"\n", overwrite=True)


def read_record(path: Path) -> Record | None:
    """Read the file; None where there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        message = f"{path} cannot be read as a progress file: {error}; remove it, or use --progress"
        raise InvalidRequestError(message) from None

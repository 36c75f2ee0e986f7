"""The format ``mortal``: as ``bucketq``, but one of its processes kills itself at one of its steps.

A step is a write to the store. The process kills itself before or after it, once: a file says that
it was done.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from bucketq.spark.data_source import BucketQDataSource
from bucketq.spark.table import bulk_writer
from bucketq.spark.table.bulk_writer import BulkJobWriter, TaskRows
from bucketq.store.cloud import CloudStore
from bucketq.store.local import LocalStore

SEGMENT_BYTES = 20_000
Write = Callable[..., Awaitable[str]]


class MortalSource(BucketQDataSource):
    """The format. The option ``death`` is the victim, the step, when, and the file."""

    @classmethod
    def name(cls) -> str:
        return "mortal"

    def writer(self, schema: StructType, overwrite: bool) -> MortalWriter:
        death = str(self.options.pop("death")).split(maxsplit=3)
        writer = super().writer(schema, overwrite)
        assert isinstance(writer, BulkJobWriter)
        writer.__class__ = MortalWriter
        assert isinstance(writer, MortalWriter)
        writer.victim, step, writer.when, done = death
        writer.step, writer.done = int(step), Path(done)
        return writer


class MortalWriter(BulkJobWriter):
    """One write, of which one process is killed."""

    victim: str
    step: int
    when: str
    done: Path

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        with self._mortal("task"):
            return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with self._mortal("driver"):
            super().commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A driver that is dead gives nothing up."""

    @contextmanager
    def _mortal(self, who: str) -> Iterator[None]:
        steps = list[int]()

        def may_die(when: str) -> None:
            if (who, self.step, self.when) == (self.victim, len(steps), when):
                try:
                    self.done.touch(exist_ok=False)
                except FileExistsError:
                    return
                os.kill(os.getpid(), signal.SIGKILL)

        def mortal(write: Write) -> Write:
            async def write_or_die(*args: Any) -> str:
                steps.append(1)
                may_die("before")
                answer = await write(*args)
                may_die("after")
                return answer

            return write_or_die

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk_writer, "SEGMENT_BYTES", SEGMENT_BYTES)
            for store in (LocalStore, CloudStore):
                patch.setattr(store, "create", mortal(store.create))
                patch.setattr(store, "replace", mortal(store.replace))
            yield

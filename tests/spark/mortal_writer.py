"""The format ``mortal``: as ``bucketq``, but one of its processes kills itself at one of its steps.

``mortal_steps`` says what a step is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from bucketq.spark.data_source import BucketQDataSource
from bucketq.spark.table import bulk_rows
from bucketq.spark.table.bulk_rows import TaskRows
from bucketq.spark.table.bulk_writer import BulkJobWriter
from tests.mortal_steps import mortal

SEGMENT_BYTES = 20_000


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
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk_rows, "SEGMENT_BYTES", SEGMENT_BYTES)
            with mortal(self.step if who == self.victim else 0, self.when, self.done):
                yield

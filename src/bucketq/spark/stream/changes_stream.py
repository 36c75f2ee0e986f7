"""``spark.readStream.format("bucketq").option("table", "changes")``: a queue's changes as a stream.

An offset is an incarnation and a version, so a query resumes where it stopped, and a micro-batch
that is repeated has the same rows. Nothing is claimed, and nothing in the queue is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from bucketq.errors import HistoryGapError
from bucketq.queue.change import HistoryRange
from bucketq.spark.chosen_columns import EVERY_COLUMN, ChosenColumns
from bucketq.spark.format_options import ChangesStreamOptions, changes_stream_options
from bucketq.spark.table.changes_table import (
    ChangesPartition,
    VersionRange,
    plan,
    read_bounds,
    read_changes,
    too_far_back,
)

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("bucketq")


class ChangesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the versions of a queue."""

    def __init__(self, given: Mapping[str, str], columns: ChosenColumns = EVERY_COLUMN) -> None:
        self._given = dict(given)
        self._columns = columns
        self._until: int | None = None
        """The last version that a query reads which ends by itself; None: it does not end."""

    @cached_property
    def _options(self) -> ChangesStreamOptions:
        return changes_stream_options(self._given)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins: with the first version there is."""
        options, bounds = self._options, read_bounds(self._options.access)
        first = bounds.first if options.first is None else options.first
        if first < bounds.first:
            raise too_far_back(options.access.url, first, bounds)
        return _offset(bounds.incarnation, first - 1)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return that a micro-batch is limited by an option of ours only."""
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the last version of the next micro-batch."""
        del limit
        bounds = read_bounds(self._options.access)
        version = self._begin(start, bounds)
        until = bounds.last if self._until is None else min(self._until, bounds.last)
        last = min(until, version + self._options.max_versions)
        return _offset(bounds.incarnation, max(version, last))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only the versions that there are now."""
        self._until = read_bounds(self._options.access).last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ChangesPartition]:
        """Plan which versions each task reads."""
        access = self._options.access
        first = self._begin(start, read_bounds(access)) + 1
        last = int(end["version"])
        if first > last:
            return []
        return plan(access, VersionRange(str(end["incarnation"]), first, last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the versions of a partition, on an executor."""
        return self._columns.of(read_changes(self._options.access, partition))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the history is kept by the queue."""

    def stop(self) -> None:
        """Do nothing: nothing is open between two calls."""

    def _begin(self, start: dict[str, Any], bounds: HistoryRange) -> int:
        """Return the version after which to begin; raise if versions were lost before it."""
        version = int(start["version"])
        if start["incarnation"] == bounds.incarnation and version + 1 >= bounds.first:
            return version
        error: HistoryGapError = too_far_back(self._options.access.url, version + 1, bounds)
        if self._options.fail_on_loss:
            hint = 'to continue with what is left, set option("failOnDataLoss", "false")'
            raise HistoryGapError(f"{error}; {hint}")
        _log.warning("%s; the stream continues with version %d", error, bounds.first)
        return bounds.first - 1


def _offset(incarnation: str, version: int) -> dict[str, Any]:
    return {"incarnation": incarnation, "version": version}

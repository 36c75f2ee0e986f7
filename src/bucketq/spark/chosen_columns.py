"""The columns that a query chooses with a schema of its own: some of ours, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from bucketq.spark.format_values import refuse

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ChosenColumns(NamedTuple):
    """Columns by our names, and as the query calls them."""

    ours: tuple[str, ...] = ()
    """Empty: all of them, in our order."""
    theirs: tuple[str, ...] = ()

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of each batch."""
        for batch in batches:
            if not self.ours:
                yield batch
                continue
            arrays = [batch.column(name) for name in self.ours]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self.theirs))


EVERY_COLUMN = ChosenColumns()


def choose_columns(schema: StructType, ddl: str) -> ChosenColumns:
    """Return the columns of a schema, among those that ``ddl`` declares.

    Raises:
        InvalidRequestError: There is no such column, or it has another type.
    """
    types = dict(column.split(" ", 1) for column in ddl.split(", "))
    for field in schema:
        kind = types.get(field.name.lower())
        if kind is None:
            refuse(f"there is no column {field.name}: the columns are {', '.join(types)}")
        if (given := field.dataType.simpleString()) != kind:
            refuse(
                f"the column {field.name} is {kind}, and not {given}: read it as {kind}, and "
                "convert it in a query"
            )
    names = [field.name for field in schema]
    if names == list(types):
        return EVERY_COLUMN
    return ChosenColumns(tuple(name.lower() for name in names), tuple(names))

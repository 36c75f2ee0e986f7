"""The columns that a query chooses with a schema of its own: some of ours, in any order.

Payloads and results may have types of the query's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from bucketq.spark.format_values import refuse
from bucketq.spark.table.json_columns import JSON_COLUMNS, fitting, json_column

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class ChosenColumns(NamedTuple):
    """Columns by our names, and as the query calls them."""

    ours: tuple[str, ...] = ()
    """Empty: all of them, in our order."""
    theirs: tuple[str, ...] = ()
    shapes: tuple[DataType | None, ...] = ()
    """The types of columns whose JSON is to be decoded; None: as they are."""

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of each batch."""
        for batch in batches:
            if not self.ours:
                yield batch
                continue
            arrays = [
                batch.column(name) if shape is None else json_column(batch.column(name), shape)
                for name, shape in zip(self.ours, self.shapes, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self.theirs))


EVERY_COLUMN = ChosenColumns()


def choose_columns(schema: StructType, ddl: str) -> ChosenColumns:
    """Return the columns of a schema, among those that ``ddl`` declares.

    Raises:
        InvalidRequestError: There is no such column, or it cannot have that type.
    """
    types = dict(column.split(" ", 1) for column in ddl.split(", "))
    for field in schema:
        kind = types.get(field.name.lower())
        if kind is None:
            refuse(f"there is no column {field.name}: the columns are {', '.join(types)}")
        given = field.dataType.simpleString()
        if given == kind:
            continue
        if field.name.lower() in JSON_COLUMNS and not given.startswith("string"):
            fitting(field.dataType)
        else:
            refuse(
                f"the column {field.name} is {kind}, and not {given}: read it as {kind}, and "
                "convert it in a query"
            )
    names = [field.name for field in schema]
    shapes = [None if _is_text(field.dataType) else field.dataType for field in schema]
    ours = tuple(name.lower() for name in names)
    shaped = [
        shape if name in JSON_COLUMNS else None for name, shape in zip(ours, shapes, strict=True)
    ]
    if names == list(types) and not any(shaped):
        return EVERY_COLUMN
    return ChosenColumns(ours, tuple(names), tuple(shaped))


def _is_text(kind: DataType) -> bool:
    return kind.simpleString() == "string"

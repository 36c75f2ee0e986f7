"""A batch as a table."""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from bucketq.cli.terminal.output import Output, moment
from bucketq.cli.terminal.text_table import Column
from bucketq.queue.job_batch import BatchInfo


def print_batch(out: Output, batch: BatchInfo) -> None:
    """Print the fields of a batch that have a value, and how many of its jobs are left."""
    fields = structs.asdict(batch) | {"left": batch.open}
    rows = [
        (name.replace("_", " "), moment(value) if isinstance(value, datetime) else value)
        for name, value in fields.items()
        if value is not None
    ]
    out.table([Column("FIELD"), Column("VALUE", flexible=True)], rows)

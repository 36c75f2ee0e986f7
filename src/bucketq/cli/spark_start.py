"""What commands that run on Spark share: their options, and starting a session.

Everything that can be wrong (the address, a missing queue, pyspark, Java) is checked before Spark
is started, which takes seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from bucketq.cli.parameters import option
from bucketq.cli.terminal.output import Output
from bucketq.client.archive import see_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str,
    option(
        "--master MASTER",
        "Spark master: local[*] for this host, spark://host:7077, or sc://host for Connect.",
    ),
]
From = Annotated[
    str, option("--from TIME", "Start: 2h (ago), 2026-02-15, or 2026-02-15T10:00:00Z.")
]
To = Annotated[str | None, option("--to TIME", "End, exclusive; now by default.")]


@contextmanager
def started(out: Output, url: str, master: str, name: str) -> Iterator[SparkSession]:
    """Check that there is an archive, then start Spark, and stop it at the end."""
    from bucketq.spark.format_options import check_shared
    from bucketq.spark.session.command_session import command_session, require_spark

    check_shared(url)
    asyncio.run(see_archive(url))
    require_spark(master)
    out.note("starting Spark")
    with command_session(master, name, is_loud=out.debug) as spark:
        yield spark

"""A program that kills executors: ``python -m tests.spark.loss_program FOLDER STORE NAME …``.

It prints a line of JSON for each kill, like ``feature_program``. STORE is the address of a queue
on an object store, or empty if no kill needs one.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import bucketq.spark
from tests.spark import executor_losses
from tests.spark.clusters import EXECUTORS
from tests.spark.feature_program import Features, try_each
from tests.spark.session import configured


def main(folder: Path, store: str, *names: str) -> None:
    """Kill one executor after the other."""
    spark = configured(EXECUTORS, folder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    bucketq.spark.register(spark)
    known: Features = {
        "write": executor_losses.write,
        "write_on_a_store": partial(executor_losses.write, store=store),
        "write_that_was_staged": partial(executor_losses.write_that_was_staged, store=store),
        "stream": executor_losses.stream,
        "run": executor_losses.run,
    }
    try_each({name: known[name] for name in names}, spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""A program that loses executors: ``python -m tests.spark.loss_program FOLDER URL``.

It prints a line of JSON for each loss, like ``feature_program``. URL is that of a queue on another
store than a file.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import bucketq.spark
from tests.spark import executor_losses
from tests.spark.feature_program import Features, try_each
from tests.spark.session import configured

MASTER = "local-cluster[2,1,1024]"


def main(folder: Path, url: str) -> None:
    """Lose one executor after the other."""
    spark = configured(MASTER, folder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    bucketq.spark.register(spark)
    plan: Features = {
        "write": executor_losses.write,
        "write_that_was_staged": executor_losses.write_that_was_staged,
        "write_on_a_store": partial(executor_losses.write, url=url),
        "stream": executor_losses.stream,
        "run": executor_losses.run,
    }
    try_each(plan, spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

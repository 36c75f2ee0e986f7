"""A driver with executors in processes of their own: ``python -m tests.spark.killed_run URL DIR``.

One of its jobs kills its executor.
"""

from __future__ import annotations

import sys
from pathlib import Path

import bucketq.spark
from tests.spark import crafts
from tests.spark.session import configured


def main(url: str, folder: Path) -> None:
    """Work on all jobs of the queue."""
    spark = configured("local-cluster[2,1,1024]", folder).getOrCreate()
    assert spark._jvm is not None
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    Path(folder, "driver").write_text(str(java), "ascii")
    tally = bucketq.spark.run(spark, url, {"kill": crafts.kill_executor}, burst=True)
    sys.stdout.write(f"{tally.ends}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

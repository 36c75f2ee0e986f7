"""Batches are read and written with the oldest Spark, which has an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.environ import ROOT, child_environ
from tests.spark.oldest_program import ROWS

PYTHON = ROOT / "build" / "oldest-spark" / "bin" / "python"


@pytest.mark.full  # It needs another Spark, and the start of another JVM.
@pytest.mark.timeout(600)
def test_batches_are_read_and_written_and_streams_refused(
    spark_environ: dict[str, str], tmp_path: Path
) -> None:
    if not PYTHON.exists():
        pytest.skip("the oldest Spark is not installed here: run `make oldest-spark`")
    environ = child_environ(PYSPARK_PYTHON=str(PYTHON), PYSPARK_DRIVER_PYTHON=str(PYTHON))
    environ["JAVA_HOME"] = spark_environ.get("JAVA_HOME") or os.environ.get("JAVA_HOME", "")
    ran = subprocess.run(
        [PYTHON, ROOT / "tests" / "spark" / "oldest_program.py", (tmp_path / "q.json").as_uri()],
        env={name: value for name, value in environ.items() if value},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["version"].startswith("4.0.")
    assert found["counts"] == {"many": ROWS, "few": 3}
    assert found["payloads"] == ROWS
    assert found["results"] == ["0", "1", "2"]
    assert "streams of bucketq need Spark 4.2 or newer" in found["stream"]

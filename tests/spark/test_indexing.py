"""The example that indexes, on Spark: the second half of ``make demo``, in the tests' session.

``tests/examples`` runs it as a user would, without Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.indexing import demo


@pytest.fixture
def log_level() -> Iterator[None]:
    """The demo is a program, and wants less in its log than tests do."""
    log = logging.getLogger("bucketq")
    before = log.level
    yield
    log.setLevel(before)


@pytest.mark.usefixtures("log_level")
def test_the_demo_indexes_on_spark_while_its_broker_is_killed_and_counts_everything(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo, "command_session", lambda _master, _name: nullcontext(spark))
    folder = tmp_path / "demo"
    code = demo.demo(folder, "local[2]", 500)
    output, wrong = capsys.readouterr()
    assert (code, wrong) == (0, ""), output
    killed = re.search(r"killed +the broker, with kill -9, when (\d+) of (\d+) segments", output)
    assert killed is not None, output
    covered, total = map(int, killed.groups())
    assert total / 2 <= covered < total
    assert re.search(rf"counted .*; {total} of {total} segments indexed", output)
    assert "left out" not in output
    assert re.search(r"web page +http://127\.0\.0\.1:\d+/ shows the queue", output)
    compacted = re.search(r"(\d+) jobs of \d+ archive files are now in \d+ Parquet fi", output)
    assert compacted is not None, output
    assert int(compacted[1]) >= total
    assert re.search(rf"│ index +│ +{total} +│", output)
    assert "<svg" in (folder / "report.html").read_text("utf-8")
    assert output.endswith("nothing was lost or duplicated\n")

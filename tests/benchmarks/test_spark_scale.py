"""What ``benchmarks/spark_scale.py`` prints of a day of jobs adds up, and the guide has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.spark_scale import BATCH, bulk, measure, table

ROOT = Path(__file__).resolve().parents[2]
DAY = 100_000_000


def test_a_day_is_extrapolated_from_a_few_batches() -> None:
    found = asyncio.run(measure(batches=2))
    push, take, archive, handle = found
    # A commit for each push, and for each batch that a stream takes, which acknowledges the last,
    # and one that prepares it; two claims and two requests with completions for handlers. Upkeep
    # commits as well.
    assert push.commits >= 2
    assert 2 <= take.commits <= 10
    assert 4 <= handle.commits <= 12
    assert archive.jobs == 2 * BATCH
    assert take.reads <= 40, "a batch is read by one request"
    whole = take.times(DAY / take.jobs)
    assert (whole.jobs, whole.commits) == (DAY, take.commits * DAY / take.jobs)
    lines = [*table(found, DAY, 1_000)]
    assert len({line.count("|") for line in lines}) == 1
    text = (ROOT / "docs" / "guides" / "spark.md").read_text()
    assert lines[0] in text, "python benchmarks/spark_scale.py prints the new table"
    for each in found:
        assert f"| {each.what} |" in text


def test_each_executor_of_a_bulk_write_makes_segments_of_its_own() -> None:
    assert bulk(1_000, 1_000).writes == 1_002
    assert bulk(DAY, 1_000).writes == 2_002
    assert bulk(DAY, 100).commits == bulk(DAY, 1_000).commits

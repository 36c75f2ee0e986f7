"""Every script of docs/guides/spark.md runs and prints what the guide shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketq.spark.format_options import read_options, stream_options, write_options
from bucketq.spark.table.job_schema import SCHEMA
from tests.spark.spark_home import ROOT

GUIDE = ROOT / "docs" / "guides" / "spark.md"
_SCRIPT = re.compile(
    r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)


def scripts() -> list[tuple[str, str]]:
    """The scripts, and what is shown of what they print, if anything."""
    return _SCRIPT.findall(GUIDE.read_text("utf-8"))


@pytest.mark.parametrize("number", range(len(scripts())))
def test_a_script_runs_and_prints_what_is_shown(
    spark: SparkSession, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, printed = scripts()[number]
    # Its builder finds the session of these tests, which is not a script's to stop.
    program = script.replace("file:///tmp/", f"{tmp_path.as_uri()}/").replace("spark.stop()", "")
    program = program.replace('"/tmp/', f'"{tmp_path}/')
    exec(compile(program, GUIDE, "exec"), {"__name__": "__main__", "spark": spark})
    assert not printed or capsys.readouterr().out == printed


def test_the_guide_names_every_column_and_every_option() -> None:
    text = GUIDE.read_text("utf-8")
    read = text.partition("## Read: a queue as a table")[2].partition("## Read: finished")[0]
    assert not [name for name in SCHEMA.names if f"`{name}`" not in read]
    checks: tuple[tuple[Callable[[dict[str, str]], object], str], ...] = (
        (read_options, "reading"),
        (write_options, "writing"),
        (stream_options, "streams"),
    )
    for options, doing in checks:
        with pytest.raises(ValueError, match=f"for {doing}, the format bucketq has") as caught:
            options({"no-such-option": ""})
        names = str(caught.value).partition(" has ")[2].split(", ")
        assert not [name for name in names if f"`{name}`" not in text]

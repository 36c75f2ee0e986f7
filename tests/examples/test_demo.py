"""The demo, which counts what it did and says whether that is right."""

from __future__ import annotations

from pathlib import Path

from tests.examples.program import EXAMPLES, Program


def test_the_demo_finds_everything_as_it_should_be_and_warns_of_nothing(tmp_path: Path) -> None:
    command = [str(EXAMPLES / "demo.py"), str(tmp_path / "demo")]
    with Program(command, tmp_path / "output.txt") as program:
        assert program.wait() == 0, program.output()
    output = program.output()
    assert "counted   3,001 of 3,001 jobs in the archive" in output
    assert output.endswith("all jobs ended as they should\n")
    assert "retried job=" not in output

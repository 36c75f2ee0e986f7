"""How tables fit terminals, and that long ones are cheap."""

from __future__ import annotations

import sys
import time

import pytest

from bucketq.cli.commands.monitoring.dead import _DEAD_COLUMNS
from bucketq.cli.commands.monitoring.ls import _COLUMNS
from bucketq.cli.terminal.text_table import Column, TextTable, fit

JOB = "01KG9MFMM0PWD5ARV0FP67PJ7K"
ROW = (JOB, "email", "queued", 0, 1, "2m05s", "", '{"to": "ada@example.org"}')


def become_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Let stdout, which is captured, be a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(columns))


def shown_at(width: int) -> list[str]:
    """The titles of the columns of ``ls`` that fit."""
    widths = [
        max(len(column.title), len(str(cell))) for column, cell in zip(_COLUMNS, ROW, strict=True)
    ]
    fitted = fit(_COLUMNS, widths, width)
    assert sum(fitted) + 2 * (sum(map(bool, fitted)) - 1) <= max(width, 41)
    return [column.title for column, each in zip(_COLUMNS, fitted, strict=True) if each]


def test_the_job_id_fits_any_terminal_and_the_payload_is_dropped_first() -> None:
    everything = [column.title for column in _COLUMNS]
    assert shown_at(200) == shown_at(90) == everything
    last = everything
    for width in range(90, 0, -1):
        shown = shown_at(width)
        assert shown[:3] == ["JOB", "KIND", "STATUS"]
        assert set(shown) <= set(last), "a narrower terminal shows no more"
        assert shown == everything or "PAYLOAD" not in shown, "it is the first to go"
        last = shown
    assert last == ["JOB", "KIND", "STATUS"]
    assert shown_at(60) == ["JOB", "KIND", "STATUS", "ATTEMPT", "AGE"]


def test_an_error_is_truncated_before_a_column_is_dropped() -> None:
    assert fit(_DEAD_COLUMNS, [26, 5, 7, 20, 300], 100) == [26, 5, 7, 20, 34]
    assert fit(_DEAD_COLUMNS, [26, 5, 7, 20, 300], 75) == [26, 5, 0, 20, 18]
    assert fit(_DEAD_COLUMNS, [26, 5, 7, 20, 300], 20) == [26, 5, 0, 0, 12]


def test_in_a_file_no_cell_is_truncated_and_no_column_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    TextTable(_COLUMNS, str).write([(*ROW[:-1], "x" * 500)])
    titles, line = capsys.readouterr().out.splitlines()
    assert titles.split() == [column.title for column in _COLUMNS]
    assert line.endswith("x" * 500)


def test_later_pages_widen_columns_but_add_or_drop_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    become_terminal(monkeypatch, 60)
    table = TextTable(_COLUMNS, str)
    table.write([ROW])
    table.write([(JOB, "a-much-longer-kind", *ROW[2:])])
    become_terminal(monkeypatch, 200)
    table.write([ROW])
    titles, *lines = capsys.readouterr().out.splitlines()
    assert titles.split() == ["JOB", "KIND", "STATUS", "ATTEMPT", "AGE"]
    assert [line.split() for line in lines] == [
        [JOB, kind, "queued", "1", "2m05s"] for kind in ("email", "a-much-longer-kind", "email")
    ]


def test_cells_are_truncated_and_wrapped_by_their_width_on_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    become_terminal(monkeypatch, 60)
    columns = [Column("A"), Column("B", right=True), Column("C", flexible=True)]
    TextTable(columns, str).write([("語語", 7, "語" * 40), ("語", 12, "plain")])
    titles, wide, plain = capsys.readouterr().out.splitlines()
    assert titles == "A      B  C"
    assert wide == "語語   7  " + "語" * 24 + " …"
    assert plain == "語    12  plain"
    TextTable([Column("A"), Column("B", wraps=True)], str).write([("a", "two words " * 10)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("   ") for line in lines[2:])
    assert max(map(len, lines)) <= 60


def test_a_table_without_rows_prints_its_titles_once(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable([Column("A"), Column("B")], str)
    table.write([])
    table.write([])
    assert capsys.readouterr().out == "A  B\n"


def test_six_thousand_rows_cost_little(capsys: pytest.CaptureFixture[str]) -> None:
    began_s = time.process_time()
    table = TextTable(_COLUMNS, str)
    for _ in range(6):
        table.write([ROW] * 1000)
    assert time.process_time() - began_s < 1.5, "0.1 s on a machine at rest"
    assert len(capsys.readouterr().out.splitlines()) == 6001


def test_a_list_that_is_written_line_by_line_stays_aligned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = TextTable([Column("EVENT", usual=10), Column("KIND")], str)
    for event in ("paused", "cancelling"):
        table.write([(event, "email")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.index("email") for line in lines[1:]] == [lines[0].index("KIND")] * 2

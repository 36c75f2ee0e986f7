"""The settings of a queue as a table, for the commands that show them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from bucketq.cli.terminal.output import Output, plain
from bucketq.cli.terminal.text_table import Column
from bucketq.model.settings import DEEP, Settings


def print_settings(out: Output, settings: Settings, names: Collection[str] = ()) -> None:
    """Print settings beside those of a new queue if they differ: those with some names, or all."""
    shown = names or Settings.__struct_fields__
    out.table(
        [Column("SETTING"), Column("VALUE"), Column("DEFAULT")],
        (_row(settings, name) for name in Settings.__struct_fields__ if name in shown),
    )


def _row(settings: Settings, name: str) -> tuple[str, str, str]:
    value, default = (plain(getattr(each, name)) for each in (settings, DEEP))
    return name, _spelled(value), "" if value == default else _spelled(default)


def _spelled(value: object) -> str:
    if isinstance(value, dict | bool):
        return msgspec.json.encode(value).decode()
    return f"{value:.15g}" if isinstance(value, float) else f"{value}"

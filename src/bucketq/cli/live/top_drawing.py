"""How ``bucketq top`` looks: a line about the queue, a table as high as the terminal, and keys."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bucketq.cli.limit_texts import describe
from bucketq.cli.live.queue_meter import QueueMeter
from bucketq.cli.live.top_state import TopRow, TopState, queue_row
from bucketq.cli.terminal.output import duration, moment, one_line

_AROUND = 5
"""Lines that are not rows: the first, an empty one, titles, the message and the keys."""
_KEYS = "up/down choose  s sort  p pause/resume  r retry dead  enter details  ? help  q quit"
_HELP = """\
up, k / down, j   choose a row
enter, d          open a queue; show details of a kind
esc               back to all queues
s                 sort by the next column
p                 pause the chosen kind or queue, or resume it
P                 pause the whole queue whose kinds are shown, or resume it
r                 queue the dead jobs of the chosen kind or queue again
?                 this page
q, Ctrl-C         quit

WAITING jobs are queued and may be claimed, or are DELAYED: not due yet. HELD jobs wait for
others. OLDEST is the age of the waiting job that was pushed first; kinds are asked in turn.
IN/s and OUT/s are jobs pushed and ended per second, over five seconds.
WORKERS of a kind are those that have a handler for it, among those heard lately.

Any key goes back."""


def draw(state: TopState, rows: Sequence[TopRow], now_s: float, height: int) -> RenderableType:
    """Return the whole screen."""
    top = _headline(state, now_s)
    if state.panel == "help":
        return Group(top, Text(), Text(_HELP))
    place = state.chosen(rows)
    if state.panel == "details" and state.meter is not None and rows:
        return Group(top, Text(), *_details(state.meter, rows[place]), Text("\nAny key goes back."))
    room = max(1, height - _AROUND)
    first = min(max(0, place - room // 2), max(0, len(rows) - room))
    table = _table(state, rows[first : first + room], place - first)
    return Group(top, Text(), table, *_foot(state))


def _headline(state: TopState, now_s: float) -> Text:
    meter = state.meter
    if meter is None:
        return _line("bucketq top, all queues", "bold")
    row = queue_row(meter, now_s)
    line = _line(one_line(meter.name), "bold")
    delayed = f"  delayed {row.delayed:,}" if row.delayed else ""
    line.append(
        f"  waiting {row.waiting:,}{delayed}  running {row.running:,}"
        f"  dead {row.dead:,}  oldest {duration(row.oldest_s)}  in {row.pushed_per_s:,.1f}/s"
        f"  out {row.ended_per_s:,.1f}/s  workers {row.workers}",
        "default",
    )
    if row.paused:
        line.append("  PAUSED", "bold yellow")
    if row.trouble:
        line.append(f"  {one_line(row.trouble)}", "bold red")
    return line


def _table(state: TopState, rows: Sequence[TopRow], chosen: int) -> Table:
    is_queues = not state.opened
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    titles = {"name": "QUEUE" if is_queues else "KIND", "waiting": "WAITING"}
    if state.sort == "delayed" or any(row.delayed for row in rows):
        titles["delayed"] = "DELAYED"
    titles |= {"held": "HELD", "running": "RUNNING", "dead": "DEAD", "oldest_s": "OLDEST"}
    if is_queues:
        titles |= {"pushed_per_s": "IN/s", "ended_per_s": "OUT/s"}
    titles |= {"workers": "WORKERS", "state": ""}
    for name, title in titles.items():
        mark = "*" if name == state.sort else ""
        side = "left" if name in {"name", "state"} else "right"
        table.add_column(f"{title}{mark}", justify=side, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]  # a literal
    for place, row in enumerate(rows):
        cells = [_cell(row, name) for name in titles]
        table.add_row(*cells, style="reverse" if place == chosen else "")
    return table


def _cell(row: TopRow, name: str) -> Text:
    if name == "state":
        if row.trouble:
            return Text(one_line(row.trouble), "red")
        return Text("paused" if row.paused else "", "yellow")
    value = getattr(row, name)
    if name == "name":
        return Text(one_line(value))
    if name == "oldest_s":
        return Text(duration(value) if value else "")
    text = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
    return Text(text, "red" if name == "dead" and value else "")


def _foot(state: TopState) -> list[Text]:
    if state.panel == "confirm":
        return [Text(), _line(f"{one_line(state.question)} [y/N]", "bold")]
    return [_line(one_line(state.message)), _line(_KEYS, "dim")]


def _details(meter: QueueMeter, row: TopRow) -> list[Text]:
    """The details of a kind: counts, limits, and the workers that have a handler for it."""
    found = meter.stats
    lines = [_line(one_line(row.name), "bold")]
    if found is not None:
        counts = found.counts.get(row.name, {})
        lines.append(_line("  ".join(f"{name} {count:,}" for name, count in counts.items())))
        lines += [
            _line(f"limited: {one_line(limit.target)}, {describe(limit)}")
            for limit in found.limited
        ]
        if found.broker is not None and found.broker.address:
            lines.append(_line(f"broker {found.broker.address}, epoch {found.broker.epoch}"))
    working = [worker for worker in meter.workers if row.name in worker.kinds]
    lines.append(_line(f"\nworkers with a handler: {len(working)}"))
    lines += [
        _line(
            f"  {one_line(worker.name)}  {one_line(worker.host)}:{worker.pid}  "
            f"running {worker.running}/{worker.concurrency}  heard {moment(worker.at)}"
            + ("  draining" if worker.draining else "")
        )
        for worker in working
    ]
    return lines


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")

"""The report as one self-contained HTML page, to be mailed, kept or printed.

Text from jobs (kinds, reasons) is escaped; if that ever fails, the page's content security policy
forbids scripts and requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from html import escape
from importlib.resources import files

from bucketq.spark.archive.archive_report import PERCENTILES, ArchiveReport, JobNumbers, ReportLine
from bucketq.spark.archive.svg_charts import (
    ChartSeries,
    bars,
    count,
    duration,
    legend,
    lines,
    small_bars,
)

_BARS_MAX = 24 * 14
"""More bars cannot be told apart on a screen; a longer range is shown by days."""
_KINDS_MAX = 30
"""A table that fits on a printed page; the other kinds are counted below it."""
_BARS_MIN = 12
"""Fewer bars would be as wide as the text."""
_ABBREVIATED_FROM = 1_000_000
"""Larger numbers do not fit in their column."""
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_NOTHING = JobNumbers()

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: ArchiveReport, url: str) -> str:
    """Return the report as an HTML page."""
    style = files(__package__).joinpath("report_page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(f'Finished jobs of {url}')}</title><style>{style}</style></head>"
        "<body><main>"
        f"<header><h1>Finished jobs</h1><p>{escape(url)}<br>"
        f"{report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M} UTC</p></header>"
        f"{_tiles(report.total, report.until - report.since)}"
        f"{_charts(report)}{_kinds(report)}{_reasons(report)}"
        "<footer>Wait: from the push to the claim, of jobs that were claimed once. Run: from the "
        "last claim to the end. Percentiles are approximate. Times are in UTC. "
        "Made by bucketq archive report.</footer>"
        "</main></body></html>\n"
    )


def _tiles(total: JobNumbers, length: timedelta) -> str:
    ended = total.completed + total.dead
    hours = max(length / _HOUR, 1 / 60)
    values = (
        (_short(total.jobs), "jobs finished"),
        (f"{total.completed / ended:.2%}" if ended else "-", "completed, of all not cancelled"),
        (count(total.jobs / hours), "jobs an hour"),
        (_short(total.retries), "retries"),
        (_at(total.wait_s, 1), "wait, p95"),
        (_at(total.run_s, 1), "run, p95"),
    )
    tiles = (f"<div><b>{value}</b><span>{name}</span></div>" for value, name in values)
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _charts(report: ArchiveReport) -> str:
    if not report.hours:
        return (
            "<section><h2>Nothing finished in this time</h2><p>Jobs are archived some time after "
            "they finish; a longer range may show more.</p></section>"
        )
    times, step = _bar_times(report)
    found = _numbers(report.hours, times, step)
    unit = "day" if step == _DAY else "hour"
    outcomes = [
        ChartSeries("completed", "ok", [each.completed for each in found]),
        ChartSeries("cancelled", "warn", [each.cancelled for each in found]),
        ChartSeries("dead", "bad", [each.dead for each in found]),
    ]
    waits = _percentiles([each.wait_s for each in found])
    runs = _percentiles([each.run_s for each in found])
    worst = ", the worst hour of each day" if step == _DAY else ""
    return (
        _chart("Throughput", f"jobs finished, by {unit}", bars, times, outcomes)
        + _chart("Wait", f"time from the push to the claim{worst}", lines, times, waits)
        + _chart("Run", f"time from the last claim to the end{worst}", lines, times, runs)
    )


def _chart(
    title: str,
    meaning: str,
    draw: Callable[[Sequence[datetime], Sequence[ChartSeries], str], str],
    times: Sequence[datetime],
    series: Sequence[ChartSeries],
) -> str:
    drawn = draw(times, series, f"{title}: {meaning}")
    return (
        f'<section class="plot"><h2>{title}</h2><p>{meaning[0].upper()}{meaning[1:]}</p>'
        f"{drawn}{legend(series)}</section>"
    )


def _bar_times(report: ArchiveReport) -> tuple[list[datetime], timedelta]:
    """Return all hours from the first to the last, or all days, and the step between them."""
    moments = [line.hour for line in report.hours if line.hour is not None]
    first, last, step = moments[0], moments[-1], _HOUR
    least = (_BARS_MIN - 1) * _HOUR
    first = min(first, max(last - least, report.since.replace(minute=0, second=0, microsecond=0)))
    while last - first < least and last + _HOUR < report.until:
        last += _HOUR
    if (last - first) / _HOUR >= _BARS_MAX:
        first, step = first.replace(hour=0), _DAY
    return [first + step * index for index in range((last - first) // step + 1)], step


def _numbers(
    hours: Sequence[ReportLine], times: Sequence[datetime], step: timedelta
) -> list[JobNumbers]:
    """Return the numbers of each hour or day."""
    found = _by_day(hours) if step == _DAY else {line.hour: line.numbers for line in hours}
    return [found.get(time, _NOTHING) for time in times]


def _by_day(hours: Sequence[ReportLine]) -> dict[datetime | None, JobNumbers]:
    """Add up hours to days; a percentile of a day is that of its worst hour."""
    days: dict[datetime | None, JobNumbers] = {}
    for line in hours:
        day = line.hour.replace(hour=0) if line.hour else None
        have, new = days.get(day, _NOTHING), line.numbers
        days[day] = JobNumbers(
            jobs=have.jobs + new.jobs,
            completed=have.completed + new.completed,
            cancelled=have.cancelled + new.cancelled,
            dead=have.dead + new.dead,
            wait_s=_worst(have.wait_s, new.wait_s),
            run_s=_worst(have.run_s, new.run_s),
        )
    return days


def _worst(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    if not one or not other:
        return one or other
    return tuple(map(max, one, other))


def _percentiles(values: Sequence[tuple[float, ...]]) -> list[ChartSeries]:
    return [
        ChartSeries(f"p{part}", colour, [each[index] if each else None for each in values])
        for index, (part, colour) in enumerate(zip(PERCENTILES, "abc", strict=True))
    ]


def _kinds(report: ArchiveReport) -> str:
    if not report.kinds:
        return ""
    shown = sorted(report.kinds, key=lambda line: -line.numbers.jobs)[:_KINDS_MAX]
    times, step = _bar_times(report) if report.hours else ([], _HOUR)
    by_kind: dict[str | None, list[ReportLine]] = {}
    for line in report.kind_hours:
        by_kind.setdefault(line.kind, []).append(line)
    rows = []
    for line in shown:
        numbers = _numbers(by_kind.get(line.kind, []), times, step)
        rows.append(
            f"<tr><td>{escape(line.kind or '')}</td><td>{_short(line.numbers.jobs)}</td>"
            f"<td>{small_bars([each.jobs for each in numbers])}</td>"
            f"{_cell(line.numbers.dead)}{_cell(line.numbers.retries)}"
            f"{_duration_cells(line.numbers.wait_s)}{_duration_cells(line.numbers.run_s)}</tr>"
        )
    left = len(report.kinds) - len(shown)
    note = f"<p>and {left:,} more kinds with fewer jobs</p>" if left else ""
    parts = "".join(f"<th>p{part}</th>" for part in PERCENTILES)
    head = (
        '<tr><th></th><th></th><th></th><th></th><th></th><th colspan="3">Wait</th>'
        '<th colspan="3">Run</th></tr><tr><th>Kind</th><th>Jobs</th>'
        f'<th class="left">by {"day" if step == _DAY else "hour"}</th><th>Dead</th><th>Retries</th>'
        f"{parts}{parts}</tr>"
    )
    table = f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<section><h2>By kind</h2><div class="wide">{table}</div>{note}</section>'


def _cell(number: int) -> str:
    return f"<td>{_short(number)}</td>" if number else '<td class="none">0</td>'


def _short(number: int) -> str:
    return f"{number:,}" if number < _ABBREVIATED_FROM else count(number)


def _duration_cells(values: Sequence[float]) -> str:
    return "".join(f"<td>{_at(values, index)}</td>" for index in range(len(PERCENTILES)))


def _reasons(report: ArchiveReport) -> str:
    if not report.reasons:
        return ""
    most = report.reasons[0].count
    items = (
        f'<li><div><b>{each.count:,}</b><span class="share">'
        f'<i style="width:{max(100 * each.count / most, 2):.0f}%"></i></span></div>'
        f"<div><code>{escape(each.reason)}</code>"
        f"<p>{escape(each.kind)}, last {each.last_at:%Y-%m-%d %H:%M}</p></div></li>"
        for each in report.reasons
    )
    return (
        "<section><h2>Why attempts failed</h2><p>Failed attempts by the first line of their error; "
        f"numbers and ids are shown as #.</p><ol>{''.join(items)}</ol></section>"
    )


def _at(values: Sequence[float], index: int) -> str:
    return duration(values[index]) if values else "-"

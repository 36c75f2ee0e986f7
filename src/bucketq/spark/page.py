"""The report as one HTML page that needs nothing else: to be sent, kept and printed.

What came from jobs (kinds, reasons) is escaped, and the page has a policy that forbids scripts and
anything from elsewhere, should that ever fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape

from bucketq.spark.charts import Series, bars, count, duration, legend, lines
from bucketq.spark.report import PERCENTILES, Line, Numbers, Report

_MOST_PLACES = 24 * 14
"""So many bars can still be told apart; a longer range is shown by days."""
_MOST_KINDS = 30
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_NOTHING = Numbers()

_STYLE = """
:root{color-scheme:light dark;--ground:#fbfaf8;--card:#fff;--ink:#1d1f24;--soft:#6b7079;
--line:#e6e3de;--ok:#2f8f6b;--warn:#d69a2d;--bad:#c8453b;--a:#3f6fd1;--b:#8a5cc7;--c:#d0618f}
@media (prefers-color-scheme:dark){:root{--ground:#14161a;--card:#1c1f25;--ink:#e9e8e4;
--soft:#9aa0aa;--line:#2c3038;--ok:#4fb98f;--warn:#e3b052;--bad:#e8756a;--a:#7ea3f0;--b:#b591e8;
--c:#e88fb4}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1000px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:26px;margin:0;letter-spacing:-.01em}
h2{font-size:17px;margin:0 0 4px}
p{margin:0;color:var(--soft)}
header p{margin:4px 0 24px;overflow-wrap:anywhere}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px;
margin-top:16px}
.tiles{display:flex;flex-wrap:wrap;gap:12px}
.tiles div{flex:1 1 140px;background:var(--card);border:1px solid var(--line);border-radius:12px;
padding:14px 16px}
.tiles b{display:block;font-size:24px;font-weight:650;letter-spacing:-.01em}
.tiles span{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto;margin-top:8px;overflow:visible}
svg text{fill:var(--soft);font-size:12px}
.grid{stroke:var(--line)}
polyline{fill:none;stroke-width:2;stroke-linejoin:round}
rect.ok{fill:var(--ok)}rect.warn{fill:var(--warn)}rect.bad{fill:var(--bad)}
polyline.a{stroke:var(--a)}polyline.b{stroke:var(--b)}polyline.c{stroke:var(--c)}
circle.a{fill:var(--a)}circle.b{fill:var(--b)}circle.c{fill:var(--c)}
.legend{display:flex;flex-wrap:wrap;gap:16px;font-size:13px;color:var(--soft);margin-top:6px}
.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
i.ok{background:var(--ok)}i.warn{background:var(--warn)}i.bad{background:var(--bad)}
i.a{background:var(--a)}i.b{background:var(--b)}i.c{background:var(--c)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin-top:10px;font-variant-numeric:tabular-nums}
th,td{padding:7px 10px;text-align:right;white-space:nowrap;border-top:1px solid var(--line)}
th{color:var(--soft);font-weight:500;font-size:13px;border-top:0}
th:first-child,td:first-child,.text{text-align:left}
td.text{white-space:normal;overflow-wrap:anywhere;font-family:ui-monospace,Menlo,monospace;
font-size:13px}
.share{display:inline-block;width:72px;height:8px;border-radius:4px;background:var(--line);
margin-left:8px;vertical-align:middle;overflow:hidden}
.share i{display:block;height:100%;background:var(--a)}
.share.bad i{background:var(--bad)}
footer{margin-top:24px;color:var(--soft);font-size:13px}
@media print{section,.tiles div{break-inside:avoid}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report, url: str) -> str:
    """The whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(f'Finished jobs of {url}')}</title><style>{_STYLE}</style></head>"
        "<body><main>"
        f"<header><h1>Finished jobs</h1><p>{escape(url)}<br>"
        f"{report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M} UTC</p></header>"
        f"{_tiles(report.total, report.until - report.since)}"
        f"{_charts(report)}{_kinds(report.kinds)}{_reasons(report)}"
        "<footer>Wait: from the push to the claim, of jobs that were claimed once. Run: from the "
        "last claim to the end. Percentiles are approximate. "
        "Made by bucketq archive report.</footer>"
        "</main></body></html>\n"
    )


def _tiles(total: Numbers, length: timedelta) -> str:
    ended = total.completed + total.dead
    hours = max(length / _HOUR, 1 / 60)
    values = (
        (f"{total.jobs:,}", "jobs finished"),
        (f"{total.completed / ended:.2%}" if ended else "-", "completed, of all not cancelled"),
        (count(total.jobs / hours), "jobs an hour"),
        (f"{total.retries:,}", "retries"),
        (_at(total.wait_s, 1), "wait, p95"),
        (_at(total.run_s, 1), "run, p95"),
    )
    tiles = (f"<div><b>{value}</b><span>{name}</span></div>" for value, name in values)
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _charts(report: Report) -> str:
    if not report.hours:
        return "<section><h2>Nothing finished in this time</h2></section>"
    places, found = _places(report)
    outcomes = [
        Series("completed", "ok", [each.completed for each in found]),
        Series("cancelled", "warn", [each.cancelled for each in found]),
        Series("dead", "bad", [each.dead for each in found]),
    ]
    waits = _percentiles([each.wait_s for each in found])
    runs = _percentiles([each.run_s for each in found])
    return (
        _section("Throughput", bars(places, outcomes, "jobs finished") + legend(outcomes))
        + _section("Wait", lines(places, waits, "time from push to claim") + legend(waits))
        + _section("Run", lines(places, runs, "time from claim to end") + legend(runs))
    )


def _places(report: Report) -> tuple[list[datetime], list[Numbers]]:
    """The hours from the first to the last, with those in which nothing happened; or the days."""
    first, last = (line.hour or report.since for line in (report.hours[0], report.hours[-1]))
    by_hour = {line.hour: line.numbers for line in report.hours}
    step = _HOUR
    if (last - first) / _HOUR >= _MOST_PLACES:
        step, first = _DAY, first.replace(hour=0)
        by_hour = _by_day(report.hours)
    places = [first + step * place for place in range((last - first) // step + 1)]
    return places, [by_hour.get(place, _NOTHING) for place in places]


def _by_day(hours: Sequence[Line]) -> dict[datetime | None, Numbers]:
    """Days made of hours; of a percentile, the worst hour of the day."""
    days: dict[datetime | None, Numbers] = {}
    for line in hours:
        day = line.hour.replace(hour=0) if line.hour else None
        have, new = days.get(day, _NOTHING), line.numbers
        days[day] = Numbers(
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


def _percentiles(values: Sequence[tuple[float, ...]]) -> list[Series]:
    return [
        Series(f"p{part}", colour, [each[place] if each else None for each in values])
        for place, (part, colour) in enumerate(zip(PERCENTILES, "abc", strict=True))
    ]


def _kinds(kinds: Sequence[Line]) -> str:
    most = max((line.numbers.jobs for line in kinds), default=1)
    shown = sorted(kinds, key=lambda line: -line.numbers.jobs)[:_MOST_KINDS]
    titles = ["Kind", "Jobs", "", "Dead", "Retries", *(f"Wait p{part}" for part in PERCENTILES)]
    titles += [f"Run p{part}" for part in PERCENTILES]
    rows = [
        [
            f"<td>{escape(line.kind or '')}</td>",
            f"<td>{line.numbers.jobs:,}</td><td>{_share(line.numbers.jobs / most)}</td>",
            f"<td>{line.numbers.dead:,}</td><td>{line.numbers.retries:,}</td>",
            *(f"<td>{_at(line.numbers.wait_s, place)}</td>" for place in range(len(PERCENTILES))),
            *(f"<td>{_at(line.numbers.run_s, place)}</td>" for place in range(len(PERCENTILES))),
        ]
        for line in shown
    ]
    left = len(kinds) - len(shown)
    note = f"<p>and {left:,} more kinds with fewer jobs</p>" if left else ""
    return _section("By kind", _table(titles, rows) + note) if rows else ""


def _reasons(report: Report) -> str:
    if not report.reasons:
        return ""
    most = report.reasons[0].count
    rows = [
        [
            f'<td>{escape(each.kind)}</td><td class="text">{escape(each.reason)}</td>',
            f"<td>{each.count:,}{_share(each.count / most, 'bad')}</td>",
            f"<td>{each.last_at:%Y-%m-%d %H:%M}</td>",
        ]
        for each in report.reasons
    ]
    note = (
        "<p>Failed attempts by the first line of their error; numbers and ids are shown as #.</p>"
    )
    return _section("Why attempts failed", note + _table(["Kind", "Reason", "Times", "Last"], rows))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(
        f'<th class="text">{title}</th>' if title == "Reason" else f"<th>{title}</th>"
        for title in titles
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _share(part: float, colour: str = "") -> str:
    return f'<span class="share {colour}"><i style="width:{100 * part:.0f}%"></i></span>'


def _at(values: Sequence[float], place: int) -> str:
    return duration(values[place]) if values else "-"

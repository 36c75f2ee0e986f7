"""Renders a run as the page ``docs/reference/benchmarks.md`` with its pictures.

``python -m benchmarks.peers.render`` renders the last run again; ``--print`` writes nothing. What
is the same for all runs is in ``page.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers.pictures import draw_depth, draw_rates
from benchmarks.peers.results import Results
from benchmarks.peers.table import (
    BURSTS,
    CELLS,
    DEPTHS,
    PEERS,
    SUSTAINED,
    Peer,
    reason_absent,
    title_of,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
RATES, DEPTH = "benchmarks-rates.svg", "benchmarks-depth.svg"
TEMPLATE = Path(__file__).with_name("page.md")
RESULTS = ROOT / "build" / "peers" / "results.json"

QUIET = 0.15
"""A machine counts as quiet if other programs use at most this share."""
CLEARLY = 1.05
"""How much faster a peer must be to be named as faster: rounds differ by some percent."""
S3 = {"writes": 0.005 / 1000, "reads": 0.0004 / 1000}
S3_EXPRESS = {
    "writes": 0.00113 / 1000,
    "reads": 0.00003 / 1000,
    "bytes_written": 0.0032 / 1e9,
    "bytes_read": 0.0006 / 1e9,
}
"""Dollars for each, as ``docs/guides/operations.md`` has them."""
SERVER_MONTH = 11.68
"""Dollars for the smallest managed PostgreSQL in one zone, at $0.016 an hour, as others reported it
for a US region in 2026."""


def render(results: Results) -> str:
    """Return the page."""
    figures = "\n".join(body(results)) if results.measurements else unmeasured()
    return TEMPLATE.read_text(encoding="utf-8").replace("{figures}\n", figures)


def unmeasured() -> str:
    """What the page says before the first run."""
    return "This page has no figures yet: the command has not been run on a quiet machine.\n"


def body(results: Results) -> Iterable[str]:
    """All parts that have figures."""
    yield from warnings(results)
    yield provenance(results)
    yield from optional("## Jobs a second, in bursts", rates(results))
    yield from optional("## Cycles a second, by waiting jobs", depths(results))
    yield from optional("## Time of a call", latencies(results))
    yield from optional("## Sustained for minutes", sustained(results))
    yield from optional("## Failover and start", failover_and_start(results))
    yield from optional("## Cost on object storage", costs(results))
    yield from optional("## Where a peer is faster", faster(results))
    yield from optional("## Not measured", absent(results))
    yield versions(results)


def optional(title: str, text: str) -> Iterable[str]:
    """A section, unless it is empty."""
    if text:
        yield f"{title}\n\n{text}"


def warnings(results: Results) -> Iterable[str]:
    """What a reader must know before any figure."""
    if results.is_quick:
        yield "> **A quick run**, for trying the benchmark out: its figures mean nothing.\n"
    if max(results.others, default=0.0) > QUIET:
        share = max(results.others)
        yield f"> **A busy machine**: other programs used up to {share:.0%} of it.\n"


def provenance(results: Results) -> str:
    """Who made the figures, when and where."""
    rounds = "one round" if results.rounds == 1 else f"{results.rounds} rounds"
    rounds += f" of {results.burst_s:g} s for each figure"
    return (
        f"Made by `{results.command}` on {results.made_at}, in {rounds}, on {results.machine}. "
        f"Other programs used {percent(results.others)} of the machine.\n"
    )


def percent(shares: list[float]) -> str:
    """A range of shares."""
    low, high = (f"{100 * each:.0f}" for each in (min(shares, default=0), max(shares, default=0)))
    return f"{low} %" if low == high else f"{low} to {high} %"


# Tables.


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table: names to the left, figures to the right."""
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(results: Results, cells: Iterable[str] = CELLS) -> list[Peer]:
    """The rows that have a figure in some of these cells."""
    names = {each.peer for each in results.measurements if each.cell in cells}
    return [peer for peer in PEERS if peer.name in names]


def title(peer: Peer) -> str:
    """The name of a row."""
    return f"**{peer.title}**" if peer.is_ours else peer.title


def pair(results: Results, peer: Peer, cells: list[tuple[str, str]]) -> str:
    """Rates beside each other, with their spread below."""
    found = [results.spread(peer.name, cell, work, "rate") for cell, work in cells]
    if not any(found):
        return "-"
    text = " / ".join(f"{each.median:,.0f}" if each else "-" for each in found)
    if results.rounds == 1:
        return text
    spreads = " / ".join(f"±{50 * each.share:.0f} %" if each else "-" for each in found)
    return f"{text}<br>{spreads}"


def columns(results: Results, cells: Iterable[str]) -> list[str]:
    """The cells that have a figure."""
    found = {each.cell for each in results.measurements}
    return [cell for cell in cells if cell in found]


def rates(results: Results) -> str:
    """The table of bursts."""
    cells = columns(results, BURSTS)
    rows = [
        [
            title(peer),
            *(pair(results, peer, [(cell, "push"), (cell, "claim+complete")]) for cell in cells),
        ]
        for peer in shown(results, cells)
    ]
    text = f"Push / claim + complete.\n\n![Jobs a second, by callers]({RATES})\n\n"
    return text + table(["", *map(title_of, cells)], rows) if rows else ""


def depths(results: Results) -> str:
    """The table of cycles."""
    cells = columns(results, DEPTHS)
    rows = [
        [title(peer), *(pair(results, peer, [(cell, "cycle")]) for cell in cells)]
        for peer in shown(results, cells)
    ]
    text = f"With 64 callers.\n\n![Cycles a second, by waiting jobs]({DEPTH})\n\n"
    return text + table(["", *map(title_of, cells)], rows) if rows else ""


def milliseconds(value: float | None) -> str:
    """A latency with three digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def latencies(results: Results) -> str:
    """The table of latencies."""
    cells, rows = columns(results, BURSTS), []
    for peer in shown(results, cells):
        row = [title(peer)]
        for cell in cells:
            p50, p99 = (
                results.value(peer.name, cell, "push", each) for each in ("p50_ms", "p99_ms")
            )
            row.append(f"{milliseconds(p50)} / {milliseconds(p99)}" if p50 else "-")
        rows.append(row)
    text = "Median / 99th percentile of a push, in milliseconds.\n\n"
    return text + table(["", *map(title_of, cells)], rows) if rows else ""


def sustained(results: Results) -> str:
    """The table of long runs."""
    rows = []
    for cell, of in SUSTAINED.items():
        for peer in shown(results):
            figures = [
                results.value(peer.name, cell, "cycle", each)
                for each in ("first", "rate", "last", "kept", "p50_ms")
            ]
            first, rate, last, kept, p50 = figures
            if None not in figures:
                row = [*(f"{each:,.0f}" for each in (first, rate, last)), f"{kept:.0%}"]
                row.append(milliseconds(p50))
                rows.append([f"{BURSTS[of].title}: {title(peer)}", *row])
    heads = ["Cycles a second", "at first", "in all", "at last", "kept", "p50 of a call, ms"]
    text = (
        f"\nCycles for {results.sustained_s:.0f} s. *At first* and *at last* are the first and the "
        "last window of 10 s, and *kept* is the whole beside the first.\n"
    )
    return table(heads, rows) + text if rows else ""


def failover_and_start(results: Results) -> str:
    """The table of failovers and of command lines."""
    rows = []
    for peer in shown(results):
        start_s = results.value(peer.name, "start", "start", "seconds")
        failover_s = results.value(peer.name, "failover", "failover", "seconds")
        if start_s is not None or failover_s is not None:
            cells = [
                "-" if each is None else f"{1000 * each:,.0f} ms" for each in (failover_s, start_s)
            ]
            rows.append([title(peer), *cells])
    text = (
        "\n*Failover*: from `kill -9` of the server to the next acknowledged push, with 10,000 "
        "jobs waiting. bucketq has a standby. Redis and PostgreSQL have none here and are "
        "started again at once, on the same disk: if the machine is gone, that does not help.\n\n"
        "*Push from zero*: a new process that pushes one job and ends: `bucketq push`, "
        "`redis-cli`, `psql`, or a Python program for queues without a command for it.\n"
    )
    return table(["", "Failover", "Push from zero"], rows) + text if rows else ""


def price(results: Results, peer: str, work: str, prices: dict[str, float]) -> float:
    """Dollars for a million jobs."""
    counts = {each: results.value(peer, "cost", work, each) or 0.0 for each in prices}
    return 1000 * sum(counts[each] * dollars for each, dollars in prices.items())


def costs(results: Results) -> str:
    """The table of requests, bytes and prices."""
    rows, per_million = [], 0.0
    for peer in shown(results):
        for work, name in (("64", "64 callers"), ("bulk", "bulk of 100")):
            usage = [
                results.value(peer.name, "cost", work, each)
                for each in ("writes", "reads", "bytes_written", "bytes_read")
            ]
            writes, reads, written, read = usage
            if writes is None or reads is None or written is None or read is None:
                continue
            s3, express = (price(results, peer.name, work, each) for each in (S3, S3_EXPRESS))
            if peer.is_ours and work == "64":
                per_million = s3
            counts = [f"{writes:,.1f}", f"{reads:,.1f}", f"{written / 1e6:,.2f}"]
            prices = [f"${s3:,.2f}", f"${express:,.2f}"]
            rows.append([f"{title(peer)}, {name}", *counts, f"{read / 1e6:,.2f}", *prices])
    if not rows:
        return ""
    heads = ["For 1,000 jobs", "writes", "reads", "MB written", "MB read"]
    even = SERVER_MONTH / per_million if per_million else 0.0
    text = (
        "\nEach job is pushed, claimed and completed, on storage that takes 50 ms a request. A "
        "broker asks as much of it as an embedded queue. The last two columns are dollars for a "
        "million jobs at [list prices](../guides/operations.md#cost).\n\n"
        "Redis and PostgreSQL have no price for a job: the smallest managed PostgreSQL in one "
        f"zone is about ${SERVER_MONTH:.2f} a month, used or not, for which bucketq carries "
        f"{even:,.1f} million jobs with 64 callers.\n"
    )
    return table([*heads, "S3, $", "S3 Express, $"], rows) + text


# Words.


def faster(results: Results) -> str:
    """Where rows are faster than bucketq's better row, cell by cell; not what cannot be chosen."""
    lines = []
    cells = [(cell, work) for cell in BURSTS for work in ("push", "claim+complete")]
    cells += [(cell, "cycle") for cell in DEPTHS]
    for cell, work in cells:
        chosen = [peer for peer in shown(results) if peer.server != "bare"]
        rates = {peer: results.value(peer.name, cell, work) for peer in chosen}
        ours = max((rate for peer, rate in rates.items() if peer.is_ours and rate), default=None)
        if ours is None:
            continue
        ahead = [
            f"{peer.title} {rate / ours:.1f}x"
            for peer, rate in sorted(rates.items(), key=lambda item: -(item[1] or 0.0))
            if rate and not peer.is_ours and rate > CLEARLY * ours
        ]
        if ahead:
            lines.append(f"- {title_of(cell)}, {work}: {', '.join(ahead)}\n")
    if not lines:
        return ""
    choosing = "../concepts/choosing.md#when-to-choose-something-else"
    text = f"\n[When to choose something else]({choosing}) says what follows.\n"
    return "Beside the faster of the two rows of bucketq:\n\n" + "".join(lines) + text


def absent(results: Results) -> str:
    """Why cells and rows have no figures."""
    lines = [f"- {name}: {reason}.\n" for name, reason in results.failures.items()]
    reasons: dict[str, tuple[list[str], list[str]]] = {}
    for peer in shown(results):
        for cell in (*BURSTS, *DEPTHS):
            if reason := reason_absent(peer, cell):
                cells, rows = reasons.setdefault(reason, ([], []))
                cells += [title_of(cell)] if title_of(cell) not in cells else []
                rows += [peer.title] if peer.title not in rows else []
    lines += [
        f"- {', '.join(cells)}, for {'; '.join(rows)}: {reason}.\n"
        for reason, (cells, rows) in reasons.items()
    ]
    return "".join(lines)


def versions(results: Results) -> str:
    """The versions that were measured."""
    lines = [
        f"- {peer.title}{f' ({peer.note})' if peer.note else ''}: "
        + ", ".join(f"{name} {version}" for name, version in results.versions[peer.name].items())
        + "\n"
        for peer in shown(results)
        if peer.name in results.versions
    ]
    return "## Versions\n\n" + "".join(lines)


def write(results: Results, page: Path = PAGE) -> None:
    """Write the page and its pictures."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(results), encoding="utf-8")
    if results.measurements:
        page.with_name(RATES).write_text(draw_rates(results), encoding="utf-8")
        page.with_name(DEPTH).write_text(draw_depth(results), encoding="utf-8")


def main() -> None:
    """Render the last run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.render", description="Render a run as a page."
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of the run")
    parser.add_argument("--print", action="store_true", help="print the page, and write nothing")
    parser.add_argument("--empty", action="store_true", help="write the page without figures")
    options = parser.parse_args()
    results = Results() if options.empty else Results.read(options.results)
    if options.print:
        print(render(results))
    else:
        write(results)


if __name__ == "__main__":
    main()

"""The comparison with other queues: its rows, its order, and what it renders."""

from __future__ import annotations

import ast
import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.peers.__main__ import (
    function_of,
    parse,
    results_path,
    run,
    steps,
)
from benchmarks.peers.adapter import Adapter, Payload
from benchmarks.peers.aims import aims, verdicts
from benchmarks.peers.cells import Bench
from benchmarks.peers.pictures import draw_depth, draw_rates
from benchmarks.peers.render import PAGE, render, write
from benchmarks.peers.results import Measurement, Results
from benchmarks.peers.servers import MissingServerError, OneProcess, running, scratch_folder
from benchmarks.peers.table import (
    BURSTS,
    CELLS,
    DEPTHS,
    PEERS,
    SUSTAINED,
    Peer,
    ServerName,
    reason_absent,
)
from benchmarks.peers.work import (
    PAYLOAD_BYTES,
    Caller,
    Work,
    claim_and_complete,
    fill,
    push,
    work_together,
)

import bucketq.testing
from tests.environ import ROOT

FOLDER = ROOT / "benchmarks" / "peers"
ROUNDS = (90.0, 100.0, 130.0)


class MemoryQueue(Adapter):
    """A queue in a list."""

    has_bulk = True

    async def setup(self, *, is_first: bool) -> None:
        self.waiting: list[Payload] = []
        self.running: list[Payload] = []

    async def push(self, payload: Payload) -> None:
        self.waiting.append(payload)

    async def claim(self, limit: int) -> list[Payload]:
        jobs, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.running += jobs
        return jobs

    async def complete(self, jobs: list[Payload]) -> None:
        for job in jobs:
            self.running.remove(job)

    async def close(self) -> None: ...


def figures_of(cell: str, rate: float) -> dict[str, dict[str, float]]:
    """Made-up figures of a cell, by work."""
    rates = {"rate": rate, "p50_ms": 1.5, "p99_ms": 2.5}
    if cell in BURSTS:
        return {"push": rates, "claim+complete": rates | {"rate": rate / 2}}
    if cell in DEPTHS:
        return {"cycle": rates}
    if cell in SUSTAINED:
        return {"cycle": rates | {"first": rate, "last": rate, "kept": 1.0}}
    if cell == "cost":
        usage = {"writes": 40.0, "reads": 2.0, "bytes_written": 3e6, "bytes_read": 1e6}
        return {"64": usage, "bulk": usage}
    return {cell: {"seconds": 0.25}}


@pytest.fixture
def results() -> Results:
    """A run in which every row but the first is ten times as fast as the first."""
    made = Results(command="the command", rounds=3, burst_s=3.0, sustained_s=120.0, others=[0.01])
    for number, rate in enumerate(ROUNDS):
        for peer in PEERS:
            made.versions[peer.name] = {"its-package": "1.2.3"}
            for cell in CELLS:
                if reason_absent(peer, cell) is None:
                    factor = 1 if peer.is_ours else 10
                    made.measurements += [
                        Measurement(peer.name, cell, work, number, figures)
                        for work, figures in figures_of(cell, factor * rate).items()
                    ]
    return made


# Rows and columns.


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_each_row_has_an_adapter_with_all_methods(peer: Peer) -> None:
    module, _, name = peer.adapter.partition(":")
    tree = ast.parse((FOLDER / f"{module}.py").read_text("utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    methods: set[str] = set()
    while name != "Adapter":
        methods |= {each.name for each in classes[name].body if hasattr(each, "name")}
        name = ast.unparse(classes[name].bases[0])
    assert methods >= Adapter.__abstractmethods__


def test_each_package_of_a_row_is_pinned() -> None:
    pinned = {
        line.partition("==")[0].lower()
        for path in (ROOT / "constraints.txt", FOLDER / "constraints.txt")
        for line in path.read_text("utf-8").splitlines()
    }
    assert {name for peer in PEERS for name in peer.distributions} - {"bucketq"} <= pinned


def test_pins_are_names_and_versions_only() -> None:
    lines = (FOLDER / "constraints.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line) for line in lines)


def test_rows_take_turns_and_long_runs_happen_once() -> None:
    order = [(number, cell, peer.name) for number, cell, peer in steps([*PEERS], [*CELLS], 3)]
    of_64 = [(number, name) for number, cell, name in order if cell == "64"]
    assert of_64 == [(number, peer.name) for number in range(3) for peer in PEERS]
    assert {number for number, cell, _ in order if cell in SUSTAINED or cell == "cost"} == {0}


@pytest.mark.parametrize("choice", ["--quick", "--only redis", "--cells 1 64"])
def test_a_run_of_a_part_does_not_replace_the_results_of_a_whole_one(choice: str) -> None:
    whole = results_path(parse(["--docs", "--rounds", "5"]))
    assert results_path(parse(choice.split())) != whole
    assert results_path(parse([*choice.split(), "--results", "here"])) == Path("here")


# Work.


async def opened() -> MemoryQueue:
    queue = MemoryQueue("")
    await queue.setup(is_first=True)
    return queue


async def test_payloads_have_a_hundred_bytes_and_differ() -> None:
    caller = Caller(await opened(), 1, "c0-1-63")
    first, second = caller.payload(), caller.payload()
    assert first != second
    assert len(str(first)) == len(str(second)) == PAYLOAD_BYTES


async def test_a_queue_is_filled_with_exactly_as_many_jobs() -> None:
    queue = await opened()
    await fill(queue, name="c", jobs=3000, callers=64)
    assert len({job["text"] for job in queue.waiting}) == 3000


async def test_claims_end_when_no_job_is_left() -> None:
    queue = await opened()
    await fill(queue, name="c", jobs=50, callers=1)
    work = await work_together(queue, claim_and_complete, name="c", callers=8, per_call=3)
    assert (work.jobs, queue.waiting, queue.running) == (50, [], [])
    assert len(work.latencies_s) == 2 * 17


def test_each_window_has_the_jobs_that_were_done_in_it() -> None:
    class SlowQueue(MemoryQueue):
        async def push(self, payload: Payload) -> None:
            await asyncio.sleep(7)

    async def main(_: object) -> Work:
        return await work_together(
            SlowQueue(""), push, name="c", callers=10, seconds=40, window_s=10
        )

    work = bucketq.testing.run(main)
    # Answers come at 7, 14, 21, 28, 35 and, after the last window, 42 seconds.
    assert work.windows == [10, 10, 20, 10]
    assert (work.jobs, work.took_s) == (60, 42)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("bucketq-embedded", "1"),
        pytest.param("bucketq", "64x4", marks=pytest.mark.full),
        pytest.param("bucketq", "failover", marks=pytest.mark.full),
        pytest.param("bucketq-embedded", "start", marks=pytest.mark.full),
        pytest.param("bucketq-embedded", "cost", marks=pytest.mark.full),
    ],
)
def test_a_cell_measures_real_processes(name: str, cell: str, tmp_path: Path) -> None:
    (peer,) = (peer for peer in PEERS if peer.name == name)
    found = dict(function_of(cell)(peer, cell, Bench(tmp_path, burst_s=0.1, sustained_s=0.4)))
    assert found.keys() == figures_of(cell, 1.0).keys()
    for figures in found.values():
        assert figures.keys() >= {"writes" if cell == "cost" else "rate"} or cell not in BURSTS
        assert max(figures.values()) > 0


def test_a_peer_that_fails_leaves_the_figures_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Peer("broken", "a broken queue", "nothing:Nothing", "files", ())
    ours = next(peer for peer in PEERS if peer.name == "bucketq-embedded")
    monkeypatch.setattr("benchmarks.peers.__main__.IDLE_S", 0.0)
    results, bench = Results(rounds=1), Bench(tmp_path, burst_s=0.05, sustained_s=0.2)
    run(results, [broken, ours], ["1"], bench, tmp_path / "results.json")
    assert results.failures.keys() == {"broken/1"}
    assert "No module named" in results.failures["broken/1"]
    assert [each.work for each in results.measurements] == ["push", "claim+complete"]
    assert Results.read(tmp_path / "results.json") == results


def test_no_step_starts_when_the_time_is_over(tmp_path: Path) -> None:
    results, bench = Results(rounds=3), Bench(tmp_path, burst_s=10.0, sustained_s=120.0)
    run(results, [*PEERS], [*CELLS], bench, tmp_path / "results.json", minutes_max=0)
    assert results.measurements == []
    assert results.failures == {"round 1 from 1 on": "the time was over"}


# Servers.


@pytest.mark.parametrize("name", ["redis", pytest.param("postgres", marks=pytest.mark.full)])
def test_a_server_comes_back_after_a_failure_and_leaves_nothing(name: ServerName) -> None:
    # The folder of a test is closed to the other user that a server of root's runs as.
    with scratch_folder(Path("/var/tmp")) as scratch:
        try:
            with running(name, scratch) as server:
                assert isinstance(server, OneProcess)
                server.fail()
                assert server.answers()
        except MissingServerError as error:
            pytest.skip(str(error))
        assert not server.answers()
        assert not [*scratch.glob(f"{name}-[!t]*")]
    assert not scratch.exists()


# Aims.


def test_aims_compare_medians_of_one_run(results: Results) -> None:
    lines = {line[:62].strip(): line[62:].split() for line in verdicts(results).splitlines()}
    # Ten times as slow as Redis, with a p50 of 1.5 ms, as fast at a million jobs as at none.
    assert lines["64 callers in one process, push, beside redis"][0] == "0.1x"
    assert lines["64 callers in one process, push, beside redis"][-1] == "MISSED"
    assert lines["64 callers in one process, push, p50"][-1] == "met"
    assert lines["1 caller, push, p50"][-1] == "MISSED"
    assert lines["1,000,000 waiting, cycle, beside 0 waiting"][-1] == "met"
    assert len(lines) == len([*aims()])


def test_an_aim_without_figures_has_no_verdict(results: Results) -> None:
    of_redis = [each for each in results.measurements if each.peer == "redis"]
    assert verdicts(replace(results, measurements=of_redis)) == ""


# The page.


def row(page: str, title: str, number: int = 0) -> list[str]:
    """The cells of the line of a table."""
    lines = [line for line in page.splitlines() if line.startswith(f"| {title}")]
    return [cell.strip() for cell in lines[number].split("|")[2:-1]]


def test_a_cell_has_medians_and_spread(results: Results) -> None:
    cells = row(render(results), "**bucketq, broker")
    assert cells[0] == "100 / 50<br>±20 % / ±20 %"


def test_a_cell_that_was_not_measured_is_a_dash(results: Results) -> None:
    page = render(results)
    assert row(page, "SAQ")[[*BURSTS].index("bulk")] == "-"
    assert row(page, "SAQ", 1) == [*["1,000<br>±20 %"] * 3, "-"]


def test_a_run_of_a_few_cells_has_only_their_columns(results: Results) -> None:
    chosen = [each for each in results.measurements if each.cell in {"1", "bulk"}]
    page = render(replace(results, measurements=chosen))
    assert "|  | 1 caller | bulk of 100 |\n" in page
    assert "waiting |" not in page
    assert "## Cost" not in page


def test_the_page_says_where_peers_are_faster(results: Results) -> None:
    section = render(results).partition("## Where a peer is faster")[2].partition("##")[0]
    assert "- 1 caller, push: bare Redis lists (bound) 10.0x" in section
    assert "bucketq embedded" not in section
    assert "in Python" not in section


def test_failovers_and_starts_are_shown_in_milliseconds(results: Results) -> None:
    section = render(results).partition("## Failover and start")[2]
    assert row(section, "bare Redis") == ["250 ms", "250 ms"]
    assert row(section, "SAQ") == ["-", "250 ms"]


def test_prices_follow_from_requests(results: Results) -> None:
    cells = row(render(results), "**bucketq embedded**, 64 callers")
    # A million jobs: 40,000 writes at $0.005 and 2,000 reads at $0.0004 for 1,000.
    assert cells == ["40.0", "2.0", "3.00", "1.00", "$0.20", "$0.06"]


def test_a_row_that_could_not_be_measured_has_its_reason(results: Results) -> None:
    results.measurements = [each for each in results.measurements if each.peer != "jqueue"]
    results.failures["jqueue"] = "it needs Python 3.12 or newer"
    page = render(results)
    assert "- jqueue: it needs Python 3.12 or newer." in page
    assert "| jqueue" not in page


@pytest.mark.parametrize(
    ("change", "warning"),
    [({"is_quick": True}, "**A quick run**"), ({"others": [0.0, 0.4]}, "**A busy machine**")],
)
def test_a_run_that_says_little_is_marked(
    results: Results, change: dict[str, Any], warning: str
) -> None:
    assert warning not in render(results)
    assert warning in render(replace(results, **change))


def test_pictures_have_a_mark_for_each_row(results: Results, tmp_path: Path) -> None:
    write(results, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text("utf-8")
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert set(re.findall(r"\]\(([\w-]+\.svg)\)", page)) == drawn
    bars = ElementTree.fromstring(draw_rates(results)).iter("{http://www.w3.org/2000/svg}rect")
    pairs = [peer for cell in BURSTS for peer in PEERS if reason_absent(peer, cell) is None]
    assert len([*bars]) == 2 * len(pairs)
    lines = ElementTree.fromstring(draw_depth(results)).iter("{http://www.w3.org/2000/svg}polyline")
    deep = [peer for peer in PEERS if reason_absent(peer, "depth-0") is None]
    assert len([*lines]) == len(deep)


def test_results_survive_their_file(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results


def test_the_page_in_docs_comes_from_the_command() -> None:
    page, empty = PAGE.read_text("utf-8"), render(Results())
    first, last = empty.partition("\n\n")[0], empty.splitlines()[-1]
    assert page == empty or (page.startswith(first) and page.rstrip().endswith(last))

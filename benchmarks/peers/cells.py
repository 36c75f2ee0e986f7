"""The cells: each measures one row once, with a new server and new client processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from threading import Timer
from time import perf_counter
from typing import Any

from benchmarks.peers.servers import ROOT, Server, end, running
from benchmarks.peers.start import start_command
from benchmarks.peers.table import BURSTS, DEPTHS, MANY, SUSTAINED, Burst, Peer

ENVIRONMENTS = ROOT / "build" / "peers"
CONNECTIONS = 64
"""Of all clients of a server together: PostgreSQL takes 100 by default."""
WINDOW_S = 10.0
"""Of sustained runs: the first window is the burst that the whole is compared with."""
PATIENCE_S = 180.0
"""How much longer than its time a command may take."""
FAILOVER_DEPTH = 10_000
STARTS = 3
COST_JOBS = 10_000
"""Enough that finished jobs leave for the archive, whose files are then counted too."""

Figures = dict[str, float]
Answer = dict[str, Any]


class PeerFailedError(Exception):
    """A peer raised an error, or did not answer."""


@dataclass(frozen=True)
class Bench:
    """Where and how long to measure."""

    scratch: Path
    burst_s: float
    """The time of one round."""
    sustained_s: float


class Client:
    """A client process, which does what it is asked."""

    def __init__(self, python: Path, options: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.peers.client", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def send(self, command: dict[str, Any]) -> None:
        """Send a command without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self, patience_s: float = PATIENCE_S) -> Answer:
        """Wait for an answer."""
        assert self._process.stdout is not None
        alarm = Timer(patience_s, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        alarm.cancel()
        answer: Answer = json.loads(line or '{"error": "it ended, or gave no answer in time"}')
        if "error" in answer:
            raise PeerFailedError(answer["error"])
        return answer

    def close(self) -> None:
        """Let it disconnect, and end it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with self._process.stdout:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                end(self._process)


class Clients:
    """All client processes of a cell, which work at the same time."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients

    def ask(self, do: str, **options: Any) -> list[Answer]:
        """Send a command to all, and return their answers."""
        for client in self._clients:
            client.send({"do": do, **options})
        patience_s = PATIENCE_S + options.get("seconds", 0.0)
        return [client.receive(patience_s) for client in self._clients]

    def fill(self, jobs: int) -> None:
        """Let the first process push jobs that wait."""
        if jobs:
            self._clients[0].send({"do": "fill", "jobs": jobs, "callers": 64})
            self._clients[0].receive(600.0)


def interpreter(peer: Peer) -> Path:
    """The Python that has the peer."""
    return (
        ENVIRONMENTS / peer.environment / "bin" / "python"
        if peer.environment
        else Path(sys.executable)
    )


@contextmanager
def clients_of(
    peer: Peer, server: Server, *, processes: int = 1, callers: int = 64, slow: bool = False
) -> Iterator[Clients]:
    """Start client processes, one after the other, because the first makes the tables."""
    clients: list[Client] = []
    try:
        for number in range(processes):
            options = {
                "adapter": peer.adapter,
                "address": server.address,
                "connections": min(callers, CONNECTIONS) // processes,
                "slow": slow,
                "name": f"c{number}",
                "is_first": number == 0,
            }
            clients.append(Client(interpreter(peer), options))
            clients[-1].receive()
        yield Clients(clients)
    finally:
        for client in clients:
            client.close()


def figures_of(answers: list[Answer]) -> Figures:
    """The rate of all processes together, and the latency of a call."""
    rate = sum(each["jobs"] / each["took_s"] for each in answers if each["took_s"])
    figures = {"rate": rate}
    latencies_s = [latency_s for each in answers for latency_s in each["latencies_s"]]
    if len(latencies_s) > 1:
        percents = quantiles(latencies_s, n=100, method="inclusive")
        figures |= {"p50_ms": 1000 * percents[49], "p99_ms": 1000 * percents[98]}
    return figures


def burst(peer: Peer, cell: str, bench: Bench) -> Iterator[tuple[str, Figures]]:
    """Push for a while, then claim and complete as long, or until none is left."""
    shape = BURSTS[cell]
    with running(peer.server, bench.scratch) as server, _warm(peer, server, shape) as clients:
        for work in ("push", "claim+complete"):
            yield work, figures_of(clients.ask(work, **_shares(shape), seconds=bench.burst_s))


def depth(peer: Peer, cell: str, bench: Bench) -> Iterator[tuple[str, Figures]]:
    """Push, claim and complete while many jobs wait."""
    shape = BURSTS["64"]
    with running(peer.server, bench.scratch) as server, _warm(peer, server, shape) as clients:
        clients.fill(DEPTHS[cell])
        yield "cycle", figures_of(clients.ask("cycle", **_shares(shape), seconds=bench.burst_s))


def sustained(peer: Peer, cell: str, bench: Bench) -> Iterator[tuple[str, Figures]]:
    """Push, claim and complete for minutes, and compare the whole with the first window."""
    shape, window_s = BURSTS[SUSTAINED[cell]], min(WINDOW_S, bench.sustained_s / 4)
    with running(peer.server, bench.scratch) as server, _warm(peer, server, shape) as clients:
        answers = clients.ask(
            "cycle", **_shares(shape), seconds=bench.sustained_s, window_s=window_s
        )
    windows = [sum(each) for each in zip(*(answer["windows"] for answer in answers), strict=False)]
    figures = figures_of(answers)
    if windows:
        figures |= {
            "first": windows[0] / window_s,
            "last": windows[-1] / window_s,
            "kept": figures["rate"] / (windows[0] / window_s) if windows[0] else 0.0,
        }
    yield "cycle", figures


def failover(peer: Peer, cell: str, bench: Bench) -> Iterator[tuple[str, Figures]]:
    """Kill the server, and wait until a push that began after that is acknowledged."""
    with running(peer.server, bench.scratch) as server:
        if peer.is_ours:
            server.start()
        with clients_of(peer, server) as clients:
            clients.ask("warm", callers=1)
            clients.fill(FAILOVER_DEPTH)
            begin = perf_counter()
            server.fail()
            clients.ask("recover")
            yield cell, {"seconds": perf_counter() - begin}


def start(peer: Peer, cell: str, bench: Bench) -> Iterator[tuple[str, Figures]]:
    """Time a program that starts, pushes a job and ends."""
    with running(peer.server, bench.scratch) as server:
        with clients_of(peer, server) as clients:
            clients.ask("warm", callers=1)
        command, took_s = start_command(peer, interpreter(peer), server), []
        for _ in range(STARTS + 1):
            begin = perf_counter()
            ran = subprocess.run(
                command, check=False, capture_output=True, cwd=ROOT, timeout=PATIENCE_S
            )
            took_s.append(perf_counter() - begin)
            if ran.returncode:
                raise PeerFailedError(ran.stderr.decode(errors="replace").strip()[-200:])
    # The first has read the program from the disk.
    yield cell, {"seconds": median(took_s[1:])}


def cost(peer: Peer, cell: str, bench: Bench) -> Iterator[tuple[str, Figures]]:
    """Count requests to object storage, alone, with 64 callers, and in bulk."""
    del cell
    shapes = {"64": (64, 1), "bulk": (4, MANY)}
    jobs = COST_JOBS if bench.burst_s > 1 else COST_JOBS // 10
    for work, (callers, per_call) in shapes.items():
        with (
            running("files", bench.scratch) as server,
            clients_of(peer, server, slow=True) as clients,
        ):
            clients.ask("warm", callers=1)
            (usage,) = clients.ask("usage", jobs=jobs, callers=callers, per_call=per_call)
            yield work, {name: 1000 * count / jobs for name, count in usage.items()}


@contextmanager
def _warm(peer: Peer, server: Server, shape: Burst) -> Iterator[Clients]:
    """Clients whose connections are open."""
    with clients_of(peer, server, processes=shape.processes, callers=shape.callers) as clients:
        clients.ask("warm", callers=shape.callers // shape.processes)
        yield clients


def _shares(shape: Burst) -> dict[str, int]:
    """What each process does of a cell."""
    return {"callers": shape.callers // shape.processes, "per_call": shape.per_call}

"""How long a command takes to start: importing the package, a push, and the help.

Run it with ``python benchmarks/startup.py``. Each line is a process that is started ``--rounds``
times, in turns with the others; the table has the least of each, because other load only adds to
it. A push with a broker is beside importing gRPC alone, which it cannot be quicker than. Two lines
import what a push needs that is not bucketq's. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from time import perf_counter
from typing import NamedTuple

import bucketq

IMPORT_CPU_S = 0.1
PUSH_S = 0.2
ABOVE_GRPC_S = 0.1
_LINE = "{:<34} {:>9} {:>9}  {}"
_PROGRAM = "from bucketq.cli import main; main()"
_LIBRARIES = "import asyncio, typer, msgspec"
"""What a push needs, whichever way it goes."""
_WITH_BROKER = f"{_LIBRARIES}, grpc, google.protobuf.descriptor_pool"


class Cost(NamedTuple):
    """What one start of a process took, in seconds."""

    wall_s: float
    cpu_s: float


def start(*words: str) -> Cost:
    """Run a process to its end."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    began = perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    took_s = perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        message = f"{' '.join(words)} ended with {process.returncode}"
        raise SystemExit(message)
    return Cost(took_s, used.ru_utime + used.ru_stime)


async def measure(rounds: int) -> dict[str, Cost]:
    """Start each process in turn, and return the least that each took."""
    with tempfile.TemporaryDirectory() as folder:
        alone, served = f"file://{folder}/alone.json", f"file://{folder}/served.json"
        processes = {
            "python -c pass": ("-c", "pass"),
            "import bucketq": ("-c", "import bucketq"),
            "bucketq.connect": ("-c", "import bucketq; bucketq.connect"),
            "import grpc": ("-c", "import grpc"),
            _LIBRARIES: ("-c", _LIBRARIES),
            "and grpc, protobuf": ("-c", _WITH_BROKER),
            "bucketq --help": ("-c", _PROGRAM, "--help"),
            "bucketq push, without a broker": ("-c", _PROGRAM, "push", alone, "mail", "1"),
            "bucketq push, with a broker": ("-c", _PROGRAM, "push", served, "mail", "1"),
        }
        found: dict[str, list[Cost]] = {name: [] for name in processes}
        async with bucketq.connect(served) as queue:
            await queue.push("mail", 0)
            for _ in range(rounds + 1):
                for name, words in processes.items():
                    found[name].append(await asyncio.to_thread(start, *words))
    # The first round writes the bytecode.
    return {
        name: Cost(*(min(column) for column in zip(*costs[1:], strict=True)))
        for name, costs in found.items()
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure how long commands take to start.")
    parser.add_argument("--rounds", type=int, default=10)
    costs = asyncio.run(measure(parser.parse_args().rounds))
    served_s = costs["import grpc"].wall_s + ABOVE_GRPC_S
    targets = {
        "import bucketq": (costs["import bucketq"].cpu_s <= IMPORT_CPU_S, "CPU at most 100 ms"),
        "bucketq push, without a broker": (
            costs["bucketq push, without a broker"].wall_s <= PUSH_S,
            "at most 200 ms",
        ),
        "bucketq push, with a broker": (
            costs["bucketq push, with a broker"].wall_s <= served_s,
            f"at most {served_s * 1000:.0f} ms: import grpc + 100 ms",
        ),
    }
    print(_LINE.format("milliseconds, least of all rounds", "wall", "CPU", "target"))
    for name, cost in costs.items():
        is_met, text = targets.get(name, (True, ""))
        print(
            _LINE.format(
                name,
                f"{cost.wall_s * 1000:.0f}",
                f"{cost.cpu_s * 1000:.0f}",
                f"{text}{'' if is_met else '  MISSED'}",
            )
        )
    return 0 if all(is_met for is_met, _ in targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

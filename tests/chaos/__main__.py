"""``make chaos``: long runs, and how long it takes until another broker answers."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.casts import PLAIN, WORKERS, Cast
from tests.chaos.failover import with_a_standby, without_a_standby
from tests.chaos.run import run
from tests.chaos.verdict import quantiles
from tests.servers import seaweedfs
from tests.servers.process import NotInstalledError
from tests.servers.server import ENVIRON, Server

LIMIT_S = 5.0
_CASTS = {cast.name: cast for cast in (WORKERS, PLAIN)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--duration-s", type=float, default=120.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--only", choices=["file", "seaweedfs", "failover"])
    parser.add_argument("--cast", choices=list(_CASTS), default=WORKERS.name)
    parser.add_argument(
        "--deep",
        action=argparse.BooleanOptionalAction,
        help="whether most jobs are in segments (default: for odd seeds)",
    )
    given = parser.parse_args()
    os.environ.update(ENVIRON)
    cast = _CASTS[given.cast]
    is_good = True
    if given.only in {None, "file"}:
        is_good = rage("a local file", None, cast, given) and is_good
    if given.only in {None, "seaweedfs"}:
        with new_folder() as folder:
            try:
                server = seaweedfs.start(folder)
            except NotInstalledError as error:
                say(str(error))
            else:
                is_good = rage("SeaweedFS", server, cast, given) and is_good
                server.stop()
    if given.only in {None, "failover"}:
        is_good = measure("one `serve` stands by", with_a_standby, given) and is_good
        is_good = measure("clients take over", without_a_standby, given) and is_good
    return 0 if is_good else 1


def rage(where: str, server: Server | None, cast: Cast, given: argparse.Namespace) -> bool:
    say(f"{cast.name} on {where}, SEED={given.seed}, {given.duration_s:g} s of faults")
    with new_folder() as folder:
        running = run(folder, server, given.seed, given.duration_s, cast, deep=given.deep)
        verdict = asyncio.run(running)
        say(verdict.table())
        for problem in verdict.problems:
            say(f"  WRONG: {problem}")
        if verdict.problems:
            keep(folder)
    return not verdict.problems


def measure(
    name: str, failovers: Callable[[Path, int, int], list[float]], given: argparse.Namespace
) -> bool:
    """Kill whoever leads many times; in 99 of 100 times it may take five seconds."""
    with new_folder() as folder:
        times_s = failovers(folder, given.kills, given.seed)
    say(f"failover where {name}, {len(times_s)} kills of the leader, SEED={given.seed}")
    for quantile, text in quantiles(times_s):
        say(f"  failover {quantile:<13} {text:>10}")
    is_good = sorted(times_s)[int(0.99 * (len(times_s) - 1))] < LIMIT_S
    if not is_good:
        say(f"  WRONG: more than {LIMIT_S:g} s")
    return is_good


@contextmanager
def new_folder() -> Iterator[Path]:
    """A folder that stays for whoever looks for the reason, if something goes wrong."""
    folder = Path(tempfile.mkdtemp(prefix="bucketq-chaos-"))
    try:
        yield folder
    except BaseException:
        keep(folder)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(folder: Path) -> None:
    kept = folder.with_name(f"{folder.name}-failed")
    folder.rename(kept)
    say(f"what the processes said is in {kept}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Brokers and clients are killed, frozen and cut off, and nothing is lost or doubled.

The same for longer is ``make chaos``. What fails here shows a seed; ``make chaos SEED=…`` draws the
same plan from it.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.casts import PLAIN, WORKERS, Cast
from tests.chaos.failover import with_a_standby, without_a_standby
from tests.chaos.run import run
from tests.servers.running import running
from tests.servers.server import ENVIRON, Server

ENOUGH = {PLAIN.name: 100, WORKERS.name: 20}
RAGE_S = {PLAIN.name: 7.0, WORKERS.name: 12.0}
_LONGER = (1, 3, 6)
"""How many times as long it is tried on a machine that is too busy to do enough in that time."""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory in memory where there is one: what is shown here is not the disk's doing."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="bucketq-test-") as name:
        yield Path(name)


async def check(folder: Path, server: Server | None, cast: Cast) -> None:
    counted = "acknowledged" if cast is PLAIN else "attempts"
    for longer in _LONGER:
        seed = random.randrange(2**32)
        inner = folder / f"{longer}"
        inner.mkdir()
        verdict = await run(inner, server, seed, longer * RAGE_S[cast.name], cast)
        hint = f"SEED={seed}\n{verdict.table()}"
        assert not verdict.problems, "\n".join([*verdict.problems, hint])
        # Two producers that are killed and stopped like everybody push few if cores are scarce.
        if verdict.numbers["takeovers"] > 0 and verdict.numbers[counted] > ENOUGH[cast.name]:
            return
    pytest.fail(f"too little was done to show anything: {hint}")


@pytest.mark.full  # Takeovers are in every run of `test_brokers`.
@pytest.mark.parametrize("measure", [with_a_standby, without_a_standby])
def test_another_broker_answers_soon_after_the_leader_was_killed(
    folder: Path, measure: Callable[[Path, int, int], list[float]]
) -> None:
    """It takes two seconds at the most where the machine has nothing else to do."""
    times_s = measure(folder, 3, random.randrange(2**32))
    assert len(times_s) >= 2
    assert max(times_s) < 15, times_s


# Each cast and each store in every run, and each cast on each store in a full one.
@pytest.mark.parametrize(
    "cast", [pytest.param(PLAIN, marks=pytest.mark.full), WORKERS], ids=lambda cast: cast.name
)
async def test_nothing_is_lost_or_doubled_on_a_file(folder: Path, cast: Cast) -> None:
    await check(folder, None, cast)


@pytest.mark.servers
@pytest.mark.parametrize(
    "cast", [PLAIN, pytest.param(WORKERS, marks=pytest.mark.full)], ids=lambda cast: cast.name
)
async def test_nothing_is_lost_or_doubled_on_a_server_whose_answers_get_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cast: Cast
) -> None:
    for variable, value in ENVIRON.items():
        monkeypatch.setenv(variable, value)
    await check(folder, running("seaweedfs"), cast)

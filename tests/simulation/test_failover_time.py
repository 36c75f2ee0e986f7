"""How long a failover takes at default settings, and who is not replaced; on virtual time."""

from __future__ import annotations

import pytest

from tests.simulation.failovers import (
    FAULTS,
    SUCCESSORS,
    Fault,
    Successor,
    failover_s,
    takeovers_in_stalls,
)

SEEDS = (2, 5, 6, 7)
"""In these a failover takes longest."""
MORE_SEEDS = (0, 1, 3, 4, 8, 9, 10, 11)
LIMIT_S = 4.0


@pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.full)], ids=["some", "more"]
)
@pytest.mark.parametrize("successor", SUCCESSORS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failover_takes_less_than_four_seconds(
    fault: Fault, successor: Successor, seeds: tuple[int, ...]
) -> None:
    times_s = {seed: failover_s(seed, fault, successor) for seed in seeds}
    worst = max(times_s, key=lambda seed: times_s[seed])
    assert times_s[worst] < LIMIT_S, f"seed {worst}"


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2))])
def test_a_leader_that_stands_still_for_two_seconds_is_not_replaced(seed: int) -> None:
    assert takeovers_in_stalls(seed, 2.0, stalls=8) == 0

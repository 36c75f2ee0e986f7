"""Print what the requests of a million jobs cost, by provider: the table of operations.md.

python tools/storage_cost.py [JOBS]

Each job is pushed, claimed and completed. The prices are list prices for US regions, in dollars for
1,000 requests, as others reported them in 2026 (R2: in 2025): check them with the provider.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

_COMMITS_PER_JOB = 3
"""A push, a claim and a completion."""


class Price(NamedTuple):
    """What 1,000 requests cost."""

    put: float
    get: float


class Route(NamedTuple):
    """How jobs are committed."""

    text: str
    jobs_per_commit: int
    reads: bool
    """Whether each commit reads the object first, as processes without a broker do."""


PRICES = {
    "S3": Price(0.005, 0.0004),
    "S3 Express": Price(0.00113, 0.00003),
    "Google": Price(0.005, 0.0004),
    "Azure": Price(0.005, 0.0004),
    "R2": Price(0.0045, 0.00036),
}
ROUTES = (
    Route("one by one, direct", 1, reads=True),
    Route("10 in a commit, direct", 10, reads=True),
    Route("100 in a commit, direct", 100, reads=True),
    Route("100 in a commit, by a broker", 100, reads=False),
    Route("1,000 in a commit, by a broker", 1000, reads=False),
)


def dollars(price: Price, route: Route, jobs: int) -> float:
    """Return what the commits of some jobs cost."""
    commits = _COMMITS_PER_JOB * jobs / route.jobs_per_commit
    return commits / 1000 * (price.put + (price.get if route.reads else 0.0))


def table(jobs: int = 1_000_000) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {jobs:,} jobs | Commits | {' | '.join(PRICES)} |"
    yield "|---" * (2 + len(PRICES)) + "|"
    for route in ROUTES:
        commits = _COMMITS_PER_JOB * jobs // route.jobs_per_commit
        # No row costs nothing.
        costs = (f"${max(dollars(price, route, jobs), 0.01):.2f}" for price in PRICES.values())
        yield f"| {route.text} | {commits:,} | {' | '.join(costs)} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(*map(int, sys.argv[1:]))) + "\n")

"""``bucketq doctor``: is this store fit for a queue, and what is to be expected of it?"""

from __future__ import annotations

from dataclasses import dataclass

from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url
from bucketq.cli.store_checks import Checkup, examine
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output, plain
from bucketq.cli.terminal.text_table import Column

PRICES_FROM = "at prices reported for US regions in 2026, which may differ from yours; see"
_JOB_COMMITS = 3
"""A job alone takes three commits: push, claim, complete."""
_BATCH = 100


@dataclass(frozen=True)
class Price:
    """What a thousand requests cost, in US dollars."""

    put: float
    get: float
    page: str
    """Where the provider tells its prices; the figures here were not taken from it."""


PRICES = {
    "s3": Price(0.005, 0.0004, "https://aws.amazon.com/s3/pricing/"),
    "gs": Price(0.005, 0.0004, "https://cloud.google.com/storage/pricing"),
    "az": Price(0.005, 0.0004, "https://azure.microsoft.com/pricing/details/storage/blobs/"),
}


@dataclass(frozen=True)
class Expectation:
    """What a store allows for, while the object is small."""

    commits_per_s_direct: float
    commits_per_s_embedded: float
    dollars_per_million_jobs: float | None
    """Each job pushed, claimed and completed by commits of its own."""
    dollars_per_million_jobs_batched: float | None
    """The same, a hundred in each commit."""


async def run(out: Output, *, url: Url) -> int:
    """Check whether a store is fit for a queue.

    It also says what to expect of it: commits in a second, and costs.

    Tried are: reading, writing, conditional writes (by really breaking their conditions), writers
    that race, the clock, listing, deleting, and how long a PUT and a GET take. It is done on a
    scratch object beside the queue, which is removed; the queue is only read. Exit code 1: no
    queue should be kept there, or the one that is there is damaged.

    Examples:
        bucketq doctor file:///srv/jobs/queue.json
        bucketq doctor s3://bucket/jobs/queue.json --json
    """
    async with open_object(url, out.timeout_s) as place:
        checkup = await examine(place.store, place.key, place.where, place.clock)
        interval_s = place.store.write_interval_s
    # Whoever runs a compatible server has other prices, or none.
    scheme = "" if "endpoint=" in url else url.partition(":")[0]
    expected = expect(checkup, scheme, interval_s)
    code = exit_codes.OK if checkup.is_fit else exit_codes.UNEXPECTED
    if out.json:
        value = plain(checkup) | {"fit": checkup.is_fit, "expected": plain(expected)}
        out.value(value)
        return code
    out.table(
        [Column("CHECK"), Column("RESULT"), Column("WHAT WAS SEEN", wraps=True)],
        ((found.name, found.judgement, found.text) for found in checkup.findings),
    )
    if expected is not None and not out.quiet:
        print()
        for line in describe(expected, scheme):
            print(line)
    return code


def expect(checkup: Checkup, scheme: str, interval_s: float) -> Expectation | None:
    """Work out what the measured times allow for."""
    if not checkup.is_fit or checkup.put_ms is None or checkup.get_ms is None:
        return None
    put_s, get_s = checkup.put_ms / 1000, checkup.get_ms / 1000
    price = PRICES.get(scheme)
    direct = embedded = None
    if price is not None:
        direct = _JOB_COMMITS * 1000 * (price.put + price.get)
        embedded = _JOB_COMMITS * 1000 * price.put / _BATCH
    return Expectation(
        commits_per_s_direct=1 / max(put_s + get_s, interval_s),
        commits_per_s_embedded=1 / max(put_s, interval_s),
        dollars_per_million_jobs=direct,
        dollars_per_million_jobs_batched=embedded,
    )


def describe(expected: Expectation, scheme: str) -> list[str]:
    """Say in sentences what to expect."""
    lines = [
        "What to expect while the queue is small (a commit rewrites all of it):",
        f"  direct    about {expected.commits_per_s_direct:,.3g} commits/s, one operation in each",
        f"  embedded  about {expected.commits_per_s_embedded:,.3g} commits/s, many in each",
    ]
    price = PRICES.get(scheme)
    if price is None or expected.dollars_per_million_jobs is None:
        return [*lines, "  cost      not known: no price list for this store"]
    return [
        *lines,
        f"  cost      ${expected.dollars_per_million_jobs:.2f} for a million jobs, one by one",
        f"            ${expected.dollars_per_million_jobs_batched:.2f} with {_BATCH} in a commit",
        f"            ({PRICES_FROM} {price.page})",
    ]

"""``bucketq doctor``: check a store, and estimate its speed and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, option
from bucketq.cli.segment_findings import check_rows
from bucketq.cli.store_checks import StoreChecks, check_store
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output, plain
from bucketq.cli.terminal.text_table import Column

# What a thousand requests cost in US dollars, in US regions in 2026: as reported by others, and the
# same for all three. The price lists are named so that readers can check.
_PRICES_FROM = "at prices reported for US regions in 2026, which may differ from yours; see"
PUT_DOLLARS, GET_DOLLARS = 0.005, 0.0004
PRICE_LISTS = {
    "s3": "https://aws.amazon.com/s3/pricing/",
    "gs": "https://cloud.google.com/storage/pricing",
    "az": "https://azure.microsoft.com/pricing/details/storage/blobs/",
}
# One job takes three commits: push, claim, complete.
_JOB_COMMITS = 3
# Jobs per commit in the second estimate of the cost: a usual number under load.
_BATCH = 100


@dataclass(frozen=True)
class Expectation:
    """The expected speed and cost, while the object is small."""

    commits_per_s_direct: float
    commits_per_s_embedded: float
    dollars_per_million_jobs: float | None
    """If each job is pushed, claimed and completed in commits of its own."""
    dollars_per_million_jobs_batched: float | None
    """If a hundred jobs share each commit."""


async def run(
    out: Output,
    *,
    url: Url,
    deep: Annotated[
        bool,
        option("--deep", "Also read every segment of the queue and its history, and check them."),
    ] = False,
) -> int:
    """Check whether a store can hold a queue.

    It also estimates the commits per second and the cost.

    It tests reading, writing, conditional writes (by violating their conditions), concurrent
    writers, the clock, listing and deleting, and measures PUT and GET, on a scratch object beside
    the queue that it deletes at the end; the queue is only read. With --deep it reads the whole
    queue: it names every segment that is missing or damaged, with the jobs that are lost, every job
    that is in two places, what is missing of the history, and segments that are left over. Exit
    code 1: the store cannot hold a queue, or the queue is damaged.

    Examples:
        bucketq doctor file:///srv/jobs/queue.json
        bucketq doctor file:///srv/jobs/queue.json --deep
        bucketq doctor s3://bucket/jobs/queue.json --json
    """
    async with open_object(url, out.timeout_s) as target:
        checks = await check_store(target)
        found = await check_rows(target, checks) if deep else None
        interval_s = target.store.write_interval_s
    # A compatible server has other prices, or none.
    scheme = "" if "endpoint=" in url else url.partition(":")[0]
    expected = expect(checks, scheme, interval_s)
    code = exit_codes.OK if checks.is_fit else exit_codes.UNEXPECTED
    if out.json:
        value = plain(checks) | {"fit": checks.is_fit, "expected": plain(expected)}
        if deep:
            value["deep"] = plain(found)
        out.value(value)
        return code
    out.table(
        [Column("CHECK"), Column("RESULT"), Column("DETAILS", wraps=True)],
        ((found.name, found.judgement, found.text) for found in checks.findings),
    )
    if expected is not None and not out.quiet:
        print()
        for line in describe(expected, scheme):
            print(line)
    return code


def expect(checks: StoreChecks, scheme: str, interval_s: float) -> Expectation | None:
    """Estimate speed and cost from the measured times."""
    if not checks.is_fit or checks.put_ms is None or checks.get_ms is None:
        return None
    put_s, get_s = checks.put_ms / 1000, checks.get_ms / 1000
    direct = embedded = None
    if scheme in PRICE_LISTS:
        direct = _JOB_COMMITS * 1000 * (PUT_DOLLARS + GET_DOLLARS)
        embedded = _JOB_COMMITS * 1000 * PUT_DOLLARS / _BATCH
    return Expectation(
        commits_per_s_direct=1 / max(put_s + get_s, interval_s),
        commits_per_s_embedded=1 / max(put_s, interval_s),
        dollars_per_million_jobs=direct,
        dollars_per_million_jobs_batched=embedded,
    )


def describe(expected: Expectation, scheme: str) -> list[str]:
    """Describe the estimate in sentences."""
    lines = [
        "What to expect while the object is small (a commit rewrites all of it):",
        f"  direct    about {expected.commits_per_s_direct:,.3g} commits/s, one operation in each",
        f"  embedded  about {expected.commits_per_s_embedded:,.3g} commits/s, many in each",
    ]
    if expected.dollars_per_million_jobs is None:
        return [*lines, "  cost      unknown: no price list for this store"]
    return [
        *lines,
        f"  cost      ${expected.dollars_per_million_jobs:.2f} for a million jobs, one by one",
        f"            ${expected.dollars_per_million_jobs_batched:.2f} with {_BATCH} in a commit",
        f"            ({_PRICES_FROM} {PRICE_LISTS[scheme]})",
    ]

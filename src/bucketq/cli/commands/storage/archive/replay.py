"""``bucketq archive replay``: push archived jobs again."""

from __future__ import annotations

from typing import Annotated

import msgspec

from bucketq.cli.parameters import Url, option
from bucketq.cli.parsing import check_timeout, moments
from bucketq.cli.spark_start import From, Master, To, started
from bucketq.cli.terminal.output import Output, counted
from bucketq.cli.terminal.progress_bar import Bar
from bucketq.clock import SystemClock, new_token
from bucketq.errors import InvalidRequestError


def run(
    out: Output,
    *,
    url: Url,
    where: Annotated[
        str, option("--where SQL", "Which jobs: a condition on the columns of a job.")
    ],
    since: From = "24h",
    until: To = None,
    dry_run: Annotated[bool, option("--dry-run", "Only count the jobs.")] = False,
    again: Annotated[
        bool, option("--again", "Also push jobs that an earlier replay has pushed.")
    ] = False,
    name: Annotated[
        str | None, option("--name NAME", "The replay to resume, as printed by it.")
    ] = None,
    master: Master = "local[*]",
) -> None:
    """Push archived jobs that match a condition again, once each.

    The new jobs name the old ones in `replay_of` and have the same kind, payload, priority, tags
    and max_attempts. Running the same command again, even after a kill, pushes only jobs that match
    since then; --again starts over. Columns are id, kind, outcome, error, payload, attempt,
    failures, pushed_at, finished_at, tags and more. It needs bucketq[spark] and Java.

    Examples:
        bucketq archive replay file:///srv/q.json --where "kind = 'index' and error like '%late%'"
        bucketq archive replay file:///srv/q.json --where "outcome = 'dead'" --from 7d --dry-run
        bucketq archive replay file:///srv/q.json --where "get_json_object(payload, '$.n') = 5"
    """
    if again and name is not None:
        raise InvalidRequestError("--again starts a new replay: leave out --name")
    begin, end = moments(since, until, "--from", "--to")
    timeout_s = check_timeout(out.timeout_s)
    from bucketq.spark.archive.replay_jobs import name_of, replay

    usual = name_of(where, since, until or "")
    chosen = new_token(SystemClock())[: len(usual)] if again else name or usual
    out.after_interrupt = f"to resume, run it again with --name {chosen}"
    with started(out, url, master, "archive replay") as spark, Bar(out, None, "job") as bar:
        bar.begin("pushing", 0)
        done = replay(
            spark,
            url,
            where,
            since=begin,
            until=end,
            name=chosen,
            dry_run=dry_run,
            timeout_s=timeout_s,
            on_progress=bar.show,
        )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.kinds.items()))
    what = "would be pushed" if dry_run else "pushed"
    text = f"{counted(done.pushed, 'job')} {what}" + (f" ({kinds})" if kinds else "")
    out.done(f"{text}; replay {chosen}", msgspec.to_builtins(done) | {"dry_run": dry_run})

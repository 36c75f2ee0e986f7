"""``bucketq schedule add``: add a schedule, or change one."""

from __future__ import annotations

from typing import Annotated, Any

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument, option
from bucketq.cli.parsing import parse_duration, parse_json, parse_tags
from bucketq.cli.terminal.output import Output

Name = Annotated[str, argument("NAME", "Name of the schedule.")]
Kind = Annotated[str, argument("KIND", "Kind of the jobs, which selects their handler.")]
Payload = Annotated[str, argument("PAYLOAD", "The payload as JSON.")]
Cron = Annotated[
    str | None, option("--cron EXPRESSION", 'When it is due, as in a crontab: "0 3 * * *".')
]
Timezone = Annotated[str, option("--timezone ZONE", "Time zone of --cron, like Europe/Berlin.")]
Every = Annotated[str | None, option("--every DURATION", "Interval, like 5m, instead of --cron.")]
Missed = Annotated[str, option("--missed latest|skip|all", "Which missed runs are made up for.")]
Jitter = Annotated[str | None, option("--jitter DURATION", "Delay each run by up to this long.")]
Alone = Annotated[bool, option("--alone", "Leave a run out if the last one is not finished.")]
Priority = Annotated[int, option("--priority -p", "Lower numbers run first.")]
MaxAttempts = Annotated[
    int | None, option("--max-attempts", "Attempts allowed, if not as in the settings.")
]
Group = Annotated[str | None, option("--group NAME", "The group of its jobs.")]
Tags = Annotated[list[str] | None, option("--tag -t NAME=VALUE", "A tag; may be repeated.")]


async def run(  # noqa: PLR0913 - each is an option
    out: Output,
    *,
    url: Url,
    name: Name,
    kind: Kind,
    payload: Payload = "null",
    cron: Cron = None,
    timezone: Timezone = "UTC",
    every: Every = None,
    missed: Missed = "latest",
    jitter: Jitter = None,
    alone: Alone = False,
    priority: Priority = 0,
    max_attempts: MaxAttempts = None,
    tags: Tags = None,
    group: Group = None,
    request: Request = None,
) -> None:
    """Add a schedule, or change the one of this name.

    A time that clocks skip in spring is due right after the gap; of one that they show twice in
    autumn the first counts. An interval is counted from the creation of the schedule. Runs that
    were missed, because no process was running or the queue was full, are made up for as --missed
    says: the latest, the last 100 (all) or none (skip).

    Examples:
        bucketq schedule add s3://bucket/jobs/queue.json nightly report --cron "0 3 * * *"
        bucketq schedule add file:///srv/queue.json nightly report '{"days": 1}' --cron "0 3 * * *"
        bucketq schedule add s3://bucket/jobs/queue.json tick ping --every 5m --alone
    """
    options: dict[str, Any] = {
        "cron": cron,
        "timezone": timezone,
        "every_s": None if every is None else parse_duration(every, "--every"),
        "missed": missed,
        "jitter_s": 0.0 if jitter is None else parse_duration(jitter, "--jitter"),
        "alone": alone,
        "priority": priority,
        "max_attempts": max_attempts,
        "tags": parse_tags(tags),
        "group": group,
    }
    value = parse_json(payload.encode(), "the payload")
    async with open_queue(url, out.timeout_s) as queue:
        answer = await queue.schedule(name, kind, value, request=request, **options)
    out.done(f"schedule {name} is {answer}", {"name": name, "result": answer})

"""``bucketq batch open``: open a batch."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument, option
from bucketq.cli.parsing import parse_json, parse_tags
from bucketq.cli.terminal.output import Output
from bucketq.queue.push_options import JobSpec

Kind = Annotated[
    str | None, argument("KIND", "Kind of the job that is pushed at the end; none if omitted.")
]
Payload = Annotated[str, argument("PAYLOAD", "The payload of that job as JSON.")]
OwnId = Annotated[str | None, option("--id", "Id of the batch; one is made if omitted.")]
Priority = Annotated[int, option("--priority -p", "Lower numbers run first.")]
MaxAttempts = Annotated[
    int | None, option("--max-attempts", "Attempts allowed, if not as in the settings.")
]
Tags = Annotated[list[str] | None, option("--tag -t NAME=VALUE", "A tag; may be repeated.")]
Group = Annotated[str | None, option("--group NAME", "The group of that job.")]


async def run(
    out: Output,
    *,
    url: Url,
    kind: Kind = None,
    payload: Payload = "null",
    batch_id: OwnId = None,
    priority: Priority = 0,
    max_attempts: MaxAttempts = None,
    tags: Tags = None,
    group: Group = None,
    request: Request = None,
) -> None:
    """Open a batch and print its id.

    Add jobs with `bucketq push --batch-id`, then close the batch. When all its jobs have ended, a
    job of KIND is pushed, once; it has the counts of the batch as `done_batch`. With an --id of
    your own the command can be repeated while the batch is open.

    Examples:
        bucketq batch open s3://bucket/jobs/queue.json report '{"mail": "ada@example.org"}'
        bucketq batch open s3://bucket/jobs/queue.json report --id nightly-2026-01-31
    """
    spec = None
    if kind is not None:
        value = parse_json(payload.encode(), "the payload")
        chosen = parse_tags(tags)
        spec = JobSpec(
            kind=kind,
            payload=value,
            priority=priority,
            max_attempts=max_attempts,
            tags=chosen,
            group=group,
        )
    async with open_queue(url, out.timeout_s, create=True) as queue:
        opened = await queue.open_batch(spec, batch_id=batch_id, request=request)
    out.result(opened, {"id": opened})

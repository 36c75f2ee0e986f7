"""``bucketq history purge``: delete old parts of a queue's history."""

from __future__ import annotations

from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_object, open_queue
from bucketq.cli.parameters import Url, option
from bucketq.cli.past_versions import parse_version_or_time
from bucketq.cli.terminal.output import Output
from bucketq.client.connect_arguments import BROKERS


async def run(
    out: Output,
    *,
    url: Url,
    before: Annotated[
        str, option("--before VERSION|TIME", "Delete versions before this one, or before a time.")
    ],
) -> None:
    """Delete what the history has of versions before a version or a time.

    Payloads of jobs that were pushed before are deleted with it. The queue and its archive stay as
    they are. Through a broker, the broker deletes the objects within seconds.

    Examples:
        bucketq history purge s3://bucket/jobs/queue.json --before 30d
        bucketq history purge s3://bucket/jobs/queue.json --before 1200
    """
    async with open_queue(url, out.timeout_s) as queue:
        since = await queue.forget_history(parse_version_or_time(before, "--before"))
    if not url.startswith(BROKERS):
        async with open_object(url, out.timeout_s) as target:
            await admin.sweep_history(target)
    out.done(f"the history of {url} begins with version {since}", {"since": since})

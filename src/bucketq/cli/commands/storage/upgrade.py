"""``bucketq upgrade``: let a queue use what this version of bucketq can do."""

from __future__ import annotations

from typing import Any

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url
from bucketq.cli.terminal.output import Output
from bucketq.errors import InvalidRequestError
from bucketq.model.settings import DEEP, Settings


async def run(out: Output, *, url: Url, request: Request = None) -> None:
    """Let a queue keep jobs in segments, so that its object stays small.

    Upgrade every process that uses the queue first: an older bucketq refuses the object as soon as
    there are segments. The setting max_format becomes 2, and limits that still have the default of
    a queue without segments become those of new queues. To go back while there are no segments:
    bucketq config URL max_format=1.

    Examples:
        bucketq upgrade s3://bucket/jobs/queue.json
    """
    async with open_queue(url, out.timeout_s) as queue:
        before = await queue.settings()
        changes = _changes(before)
        if changes:
            try:
                await queue.configure(request=request, **changes)
            except InvalidRequestError as error:
                raise InvalidRequestError(
                    f"{error}; the broker of this queue may be older: upgrade it first"
                ) from error
    if not changes:
        out.done(f"{url} is up to date: max_format is {before.max_format}", {"changed": {}})
        return
    what = [f"{name} {getattr(before, name)} -> {value}" for name, value in changes.items()]
    out.done(f"upgraded {url}: {', '.join(what)}", {"changed": changes})
    out.note(
        "every process that uses it must run this version of bucketq or a newer one; older ones "
        "refuse the queue from its first segment on"
    )


def _changes(settings: Settings) -> dict[str, Any]:
    """The settings to change: the format, and limits that are not of an operator's choice."""
    if settings.max_format >= DEEP.max_format:
        return {}
    old = Settings()
    return {
        name: getattr(DEEP, name)
        for name in Settings.__struct_fields__
        if getattr(DEEP, name) != getattr(old, name)
        and getattr(settings, name) == getattr(old, name)
    }

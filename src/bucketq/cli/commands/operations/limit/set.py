"""``bucketq limit set``: set a limit."""

from __future__ import annotations

from typing import Annotated, Any

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import LimitTarget, Request, Url, argument
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal.output import Output
from bucketq.errors import InvalidRequestError

Values = Annotated[
    list[str], argument("running=N|rate=N/PERIOD", "How many run at once, or start in a period.")
]


async def run(
    out: Output, *, url: Url, target: LimitTarget, values: Values, request: Request = None
) -> None:
    """Set the limit of a kind or a group.

    It replaces the limit that was there. group=* holds for every group by itself that has no limit
    of its own; jobs without a group have none. A rate is a token bucket: after a time without
    starts, N jobs may start at once. Retries count as starts. Jobs that are running go on.
    `limit URL ...` means the same as `limit set URL ...`.

    Examples:
        bucketq limit set s3://bucket/jobs/queue.json kind=email running=5 rate=100/1m
        bucketq limit file:///srv/jobs/queue.json group=acme running=20
        bucketq limit file:///srv/jobs/queue.json 'group=*' running=2 rate=1000/1h
    """
    whom, limits = parse_target(target), _parse(values)
    async with open_queue(url, out.timeout_s) as queue:
        answer = await queue.limit(request=request, **whom, **limits)
    out.done(f"limit {target} is {answer}", {"target": target, "result": answer})


def parse_target(text: str) -> dict[str, Any]:
    """Parse what a limit holds for: kind=NAME, group=NAME or group=*."""
    field, is_given, name = text.partition("=")
    if field not in ("kind", "group") or not is_given:
        raise InvalidRequestError(
            f"{text!r} is not what a limit holds for; write kind=NAME, group=NAME or 'group=*'"
        )
    return {field: name}


def _parse(values: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for value in values:
        name, _, text = value.partition("=")
        count, _, period = text.partition("/")
        if name in given or name not in ("running", "rate") or (name == "rate") is not bool(period):
            raise InvalidRequestError(
                f"{value!r} is not a limit; write running=5, or rate=100/1m for 100 in a minute, "
                "each once"
            )
        try:
            given[name] = int(count)
        except ValueError:
            raise InvalidRequestError(f"{value!r}: {count!r} is not a whole number") from None
        if period:
            # `rate=100/m` is what people write, too.
            text = period if period[0].isdigit() else f"1{period}"
            given["period_s"] = parse_duration(text, "the period of rate")
    return given

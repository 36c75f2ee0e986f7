"""``bucketq push``: push one job, or one per line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument, option
from bucketq.cli.parsing import (
    STDIN,
    parse_duration,
    parse_json,
    parse_tags,
    parse_time,
    read_bytes,
)
from bucketq.cli.terminal.output import Output
from bucketq.clock import SystemClock, new_id
from bucketq.errors import InvalidRequestError
from bucketq.queue.push_options import DEFAULT_SCOPE

Batch = Annotated[int | None, option("--batch N", "With --bulk: jobs per commit.", min=1)]
ProgressPath = Annotated[
    Path | None,
    option("--progress PATH", "Where to record progress; FILE.bucketq-progress by default."),
]
Restart = Annotated[bool, option("--restart", "Push every line again, as new jobs.")]


KindArgument = Annotated[
    str | None, argument("KIND", "Kind of the job, which selects its handler.")
]
PayloadArgument = Annotated[
    str | None, argument("PAYLOAD", "The payload as JSON; read from --file or stdin if omitted.")
]
FilePath = Annotated[
    Path | None, option("--file -f PATH", "Read the payload from a file; - is stdin.")
]
Encoding = Annotated[
    str, option("--as json|text|bytes", "Format of the payload; a file of bytes may be large.")
]
Bulk = Annotated[bool, option("--bulk", "Push each line of the file (JSON lines) as a job.")]
OwnId = Annotated[str | None, option("--id", "Id of the job.")]
Key = Annotated[str | None, option("--key", "Idempotency key: repeats within an hour are ignored.")]
Priority = Annotated[int, option("--priority -p", "Lower numbers run first.")]
Delay = Annotated[str | None, option("--delay DURATION", "Run after this long, like 15m.")]
RunAt = Annotated[str | None, option("--run-at TIME", "Run at this time or later.")]
Expires = Annotated[
    str | None, option("--expires DURATION", "Never run it unless it starts within this long.")
]
MaxAttempts = Annotated[
    int | None, option("--max-attempts", "Attempts allowed, if not as in the settings.")
]
Wait = Annotated[
    str | None, option("--wait DURATION", "Wait for the result and print it instead of the id.")
]
Unique = Annotated[
    str | None, option("--unique NAME", "Push nothing while a job of this kind and name is there.")
]
UniqueScope = Annotated[
    str | None,
    option(
        "--unique-scope SCOPE",
        "Which jobs count: queued, queued+running (default), or a duration like 10m.",
    ),
]
Replace = Annotated[
    str | None,
    option("--replace payload|run_at|both", "What to replace in the unique job that waits."),
]
Group = Annotated[
    str | None, option("--group NAME", "A group, such as a tenant, that shares turns and limits.")
]
After = Annotated[
    list[str] | None,
    option("--after JOB", "Hold it back until this job has completed; may be repeated."),
]
OnFailed = Annotated[
    str | None, option("--on-failed run", "Run it even if a job of --after does not complete.")
]
BatchId = Annotated[
    str | None, option("--batch-id BATCH", "The open batch that it is added to (`bucketq batch`).")
]
Tags = Annotated[list[str] | None, option("--tag -t NAME=VALUE", "A tag; may be repeated.")]


async def run(  # noqa: PLR0913 - each is an option
    out: Output,
    *,
    url: Url,
    kind: KindArgument = None,
    payload: PayloadArgument = None,
    file: FilePath = None,
    encoding: Encoding = "json",
    bulk: Bulk = False,
    job_id: OwnId = None,
    key: Key = None,
    priority: Priority = 0,
    delay: Delay = None,
    run_at: RunAt = None,
    expires: Expires = None,
    max_attempts: MaxAttempts = None,
    tags: Tags = None,
    group: Group = None,
    unique: Unique = None,
    unique_scope: UniqueScope = None,
    replace: Replace = None,
    after: After = None,
    on_failed: OnFailed = None,
    batch_id: BatchId = None,
    batch: Batch = None,
    progress: ProgressPath = None,
    restart: Restart = False,
    wait: Wait = None,
    request: Request = None,
) -> int:
    """Push a job and print its id; with --bulk, one job per line.

    With --bulk and a KIND, each line is a payload. Without a KIND, each line is a job:
    {"kind": "email", "payload": {...}, "priority": 5, "key": "...", "tags": {...}}; id, priority,
    delay_s, run_at, max_attempts, backoff, key, tags, unique, unique_scope, replace, expires_in_s,
    group, after, on_failed and batch_id are optional. All are checked before the first is pushed.

    All lines of a large file are pushed in one commit, all or none, unless lines have an id, a key,
    a unique name, a batch, jobs to wait for or a time, or a broker or --batch is given.

    A bulk push can be interrupted at any time, even by kill -9, and resumed by running the same
    command again: no line is lost or pushed twice. Progress is recorded in FILE.bucketq-progress,
    and the id of a job is derived from the content of the file and the line number. The progress
    file is kept at the end, so that running the command again does nothing; --restart pushes
    everything again. A push from stdin cannot be resumed. A missing queue is created.

    Examples:
        bucketq push file:///srv/jobs/queue.json email '{"to": "ada@example.org"}'
        bucketq push file:///srv/jobs/queue.json thumbnail --group acme --file a.png --as bytes
        bucketq push file:///srv/jobs/queue.json index 17 --unique user-17 --delay 5s --replace both
        bucketq push file:///srv/jobs/queue.json quote '"ACME"' --expires 30s --wait 40s
        bucketq push file:///srv/jobs/queue.json mail '"ada"' --after 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq push s3://bucket/jobs/queue.json --bulk --file jobs.jsonl --batch 5000
    """
    common: dict[str, Any] = {"priority": priority, "max_attempts": max_attempts, "group": group}
    common |= _parse_times(delay, run_at, expires) | {"batch_id": batch_id}
    common["tags"] = parse_tags(tags)
    names = {"id": job_id, "key": key, "unique": unique, "unique_scope": unique_scope}
    links = {"after": after or None, "on_failed": on_failed}
    single = names | links | {"request": request, "replace": replace}
    if bulk:
        _refuse_file_as_kind(kind if payload is None else payload, file)
        _refuse_single(single | {"wait": wait}, payload, encoding)
        defaults = common | {"kind": kind, "priority": priority or None}
        plan = {"progress": progress, "restart": restart, "batch_jobs": batch}
        return await _push_bulk(out, url, file or Path(STDIN), defaults, plan)
    kind = _check_single(kind, progress, restart=restart)
    value = _read_payload(payload, file, encoding)
    options = common | single | {"unique_scope": _parse_scope(unique_scope)}
    return await _push_one(out, url, kind, value, wait, options)


def _check_single(kind: str | None, progress: Path | None, *, restart: bool) -> str:
    """Return the kind of a single job, before its payload is read from stdin."""
    if progress is not None or restart:
        raise InvalidRequestError("--progress and --restart need --bulk")
    if kind is None:
        raise InvalidRequestError("name the kind of the job: bucketq push URL KIND PAYLOAD")
    return kind


def _parse_times(delay: str | None, run_at: str | None, expires: str | None) -> dict[str, Any]:
    return {
        "delay_s": None if delay is None else parse_duration(delay, "--delay"),
        "run_at": None if run_at is None else parse_time(run_at, "--run-at"),
        "expires_in_s": None if expires is None else parse_duration(expires, "--expires"),
    }


async def _push_one(
    out: Output,
    url: str,
    kind: str,
    payload: Any,
    wait: str | None,
    options: dict[str, Any],
) -> int:
    wait_s = None if wait is None else parse_duration(wait, "--wait")
    if not options["id"] and not options["request"]:
        # Chosen before the push is sent, so that an interrupted one can be repeated safely.
        options["id"] = new_id(SystemClock())
    if options["id"]:
        out.after_interrupt = (
            f"the job may have been pushed; to make sure, run it again with --id {options['id']}"
        )
    async with open_queue(url, out.timeout_s, create=True) as queue:
        pushed = await queue.push(kind, payload, **options)
        if pushed.duplicate:
            out.note(f"job {pushed} was there already, so none was added")
        if wait_s is not None:
            from bucketq.cli.commands.producers.wait import print_result

            if not pushed.duplicate:
                out.note(f"pushed {pushed}")
            return await print_result(out, queue, pushed, wait_s)
    out.result(pushed, {"id": str(pushed), "duplicate": pushed.duplicate})
    return 0


async def _push_bulk(
    out: Output, url: str, source: Path, defaults: dict[str, Any], plan: dict[str, Any]
) -> int:
    from bucketq.cli.bulk.feed_pusher import Plan, push_lines
    from bucketq.cli.bulk.feeds import Defaults

    if str(source) == STDIN and (plan["progress"] is not None or plan["restart"]):
        message = "a push from stdin cannot be resumed: --progress and --restart need --file"
        raise InvalidRequestError(message)
    return await push_lines(out, Plan(url=url, defaults=Defaults(**defaults), **plan), source)


def _read_payload(payload: str | None, file: Path | None, encoding: str) -> Any:
    if encoding not in {"json", "text", "bytes"}:
        raise InvalidRequestError(f"unknown format --as {encoding!r}; use json, text or bytes")
    if payload is not None and file is not None:
        raise InvalidRequestError("the payload is given twice, as an argument and by --file")
    if payload is None and file is None and sys.stdin.isatty():
        raise InvalidRequestError("no payload: give it as an argument, by --file, or on stdin")
    if encoding == "bytes" and payload is None:
        # It is read in parts, and may be larger than the memory.
        return sys.stdin.buffer if file is None or str(file) == STDIN else file
    raw = read_bytes(file or Path(STDIN)) if payload is None else payload.encode()
    if encoding == "bytes":
        return raw
    if encoding == "text":
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            message = f"the payload is not UTF-8: {error}; use --as bytes"
            raise InvalidRequestError(message) from None
    if not raw.strip():
        source = "the argument" if payload is not None else file or "stdin"
        raise InvalidRequestError(f"no payload: {source} is empty; write an empty string as '\"\"'")
    return parse_json(raw, "the payload")


def _parse_scope(text: str | None) -> str | float:
    if text is None or text.startswith("queued"):
        return text or DEFAULT_SCOPE
    return parse_duration(text, "--unique-scope (queued, queued+running or a duration)")


def _refuse_file_as_kind(argument: str | None, file: Path | None) -> None:
    """Raise ``InvalidRequestError`` if the last argument of a bulk push was meant as its file."""
    if argument is not None and file is None and Path(argument).is_file():
        raise InvalidRequestError(
            f"{argument} is a file, but stands for the kind of the jobs or a payload here; to push "
            f"its lines, write --bulk --file {argument}"
        )


def _refuse_single(single: dict[str, Any], payload: str | None, encoding: str) -> None:
    single["as"] = None if encoding == "json" else encoding
    given = {f"--{name.replace('_', '-')}": value for name, value in single.items()}
    for name, value in (given | {"the payload": payload}).items():
        if value is not None:
            raise InvalidRequestError(f"--bulk pushes many jobs: {name} is for a single job")

"""The options of a push, and how they become a ``NewJob``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from msgspec import UNSET, Raw, Struct, structs

from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model import check
from bucketq.model.base import NewJob, Replacement, UniqueScope
from bucketq.model.records import Backoff, OnFailed
from bucketq.model.requests.plain_jobs import PlainJobs
from bucketq.model.settings import Settings
from bucketq.queue import payload as payloads
from bucketq.queue.arguments import as_plain, to_seconds
from bucketq.queue.large.side_content import is_file

T = TypeVar("T")

After = str | Collection[str] | None
"""The id of a job, or several."""
DEFAULT_PRIORITY = 0
DEFAULT_SCOPE: UniqueScope = "queued+running"
UNLIMITED = Settings(max_payload_bytes=2**40, max_tags=2**31, max_format=2)
"""The queue's own limits are known only when the request is applied."""


class PushOptions(TypedDict, total=False):
    """The options of ``push``; ``JobSpec`` has the same."""

    id: str | None
    """The job's id; by default one is made. A queue has it once, and each partition of a queue: the
    same id with another group, key or unique name may be another job there."""
    priority: int
    """Lower goes first."""
    delay_s: float | timedelta | None
    """How long the job waits before it can be claimed."""
    run_at: datetime | None
    """When it can be claimed at the earliest, instead of ``delay_s``."""
    max_attempts: int | None
    """After how many failures and lost leases it is dead; None: what the settings say."""
    backoff: Backoff | None
    """How long it waits after a failure; None: what the settings say."""
    key: str | None
    """An idempotency key: a second push with the same key adds nothing."""
    tags: dict[str, str] | None
    """Labels to filter by."""
    unique: str | None
    """A unique name among the jobs of its kind: if it is taken, nothing is added, and the id of the
    job that has it is returned."""
    unique_scope: UniqueScope | float | timedelta
    """Whose name counts: that of jobs that are ``queued``, or ``queued+running``; or for how many
    seconds a name is taken, whatever became of its job."""
    replace: Replacement | None
    """What a push with a unique name replaces in a job that is there and waits: its ``payload``,
    its times (``run_at``), or ``both``."""
    expires_in_s: float | timedelta | None
    """If no worker has claimed the job after so long it never runs, and ends as ``expired``."""
    group: str | None
    """With which jobs it shares turns and limits, such as those of a tenant."""
    after: After
    """The ids of jobs, up to 1,000, that must have completed before it runs. If one of them does
    not complete, this job is dead."""
    on_failed: OnFailed | None
    """With ``after``, ``run``: it runs when all of them have ended, in whichever way."""
    batch_id: str | None
    """The open batch that it is added to; ``Batch.push`` sets it."""


class JobSpec(Struct, Generic[T], frozen=True, kw_only=True):
    """A job for ``push_many``: the arguments of ``push``, and one more field, all by name.

    As in ``JobSpec(kind="email", payload={"to": "ada"}, priority=5)``.
    """

    if TYPE_CHECKING:
        kind: str
        payload: T
    else:  # So that a spec without them raises an error that says how to make one.
        kind: str = UNSET
        payload: T = UNSET
    id: str | None = None
    priority: int = DEFAULT_PRIORITY
    delay_s: float | timedelta | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    key: str | None = None
    tags: dict[str, str] | None = None
    unique: str | None = None
    unique_scope: UniqueScope | float | timedelta = DEFAULT_SCOPE
    replace: Replacement | None = None
    expires_in_s: float | timedelta | None = None
    group: str | None = None
    after: After = None
    on_failed: OnFailed | None = None
    batch_id: str | None = None
    replay_of: str | None = None
    """The archived job that this one repeats."""

    def __post_init__(self) -> None:
        kind: object = self.kind
        payload: object = self.payload
        if kind is UNSET or payload is UNSET:
            missing = "kind" if kind is UNSET else "payload"
            raise InvalidRequestError(
                f'a JobSpec needs a {missing}, like JobSpec(kind="mail", payload={{"to": "ada"}}); '
                "the payload may be None"
            )


def plain_body(kind: str, payload: object) -> bytes | None:
    """Check and encode what a job without options has; None: ``new_job`` has to look at it.

    Most jobs are like that, and take a third of the steps.
    """
    body = payloads.encode_plain(payload)
    if body is not None:
        check.kind(kind)
    return body


def _is_plain(spec: JobSpec[Any]) -> bool:
    """Whether a job has a kind and a payload and no options: each is the default itself."""
    return (
        spec.id is None
        and spec.priority is DEFAULT_PRIORITY
        and spec.delay_s is None
        and spec.run_at is None
        and spec.max_attempts is None
        and spec.backoff is None
        and spec.key is None
        and spec.tags is None
        and spec.unique is None
        and spec.unique_scope is DEFAULT_SCOPE
        and spec.replace is None
        and spec.expires_in_s is None
        and spec.group is None
        and spec.after is None
        and spec.on_failed is None
        and spec.batch_id is None
        and spec.replay_of is None
    )


def _plain_job(spec: JobSpec[Any], default_id: str, payload_type: Any) -> NewJob | None:
    """Encode a job without options, as ``plain_body`` does."""
    if payload_type is not Any or not isinstance(spec, JobSpec) or not _is_plain(spec):
        return None
    body = plain_body(spec.kind, spec.payload)
    return None if body is None else NewJob(id=default_id, kind=spec.kind, payload=Raw(body))


def new_jobs(
    specs: Sequence[JobSpec[Any]], ids: Sequence[str], payload_type: Any
) -> tuple[NewJob, ...]:
    """Encode jobs as ``new_job`` does, with default ids: ``PlainJobs`` if none has options."""
    plain = list[NewJob]()
    for spec, default_id in zip(specs, ids, strict=True):
        job = _plain_job(spec, default_id, payload_type)
        if job is None:
            break
        plain.append(job)
    start = len(plain)
    if start == len(specs):
        return PlainJobs(plain)
    others = zip(specs[start:], ids[start:], strict=True)
    return (*plain, *[new_job(each, own, payload_type, takes_files=True) for each, own in others])


def new_job(
    spec: JobSpec[Any], default_id: str, payload_type: Any, *, takes_files: bool = False
) -> NewJob:
    """Encode a job, and check that its payload decodes to what it was.

    ``default_id`` is an id that is made, or was checked. The caller reads files, if it
    ``takes_files``.
    """
    if not isinstance(spec, JobSpec):
        message = f"push_many takes JobSpec objects, got {type(spec).__name__}"
        raise InvalidRequestError(message)
    plain = _plain_job(spec, default_id, payload_type)
    if plain is not None:
        return plain
    payload = spec.payload
    if is_file(payload):
        if not takes_files:
            raise PayloadError(
                "a file is a payload for push and push_many only: read it, or push it"
            )
        payload = b""  # It is read when the job is sent.
    raw, encoding = payloads.encode(payload, "payload", payload_type)
    tags = spec.tags
    scope, period_s = scope_of(spec)
    new = NewJob(
        id=default_id if spec.id is None else as_plain(spec.id),
        kind=spec.kind,
        payload=raw,
        payload_encoding=encoding,
        priority=spec.priority,
        delay_s=to_seconds(spec.delay_s),
        run_at=spec.run_at,
        max_attempts=spec.max_attempts,
        backoff=spec.backoff,
        key=as_plain(spec.key),
        # A copy: the state keeps it, and the caller may change the original.
        tags=dict(tags) if isinstance(tags, dict) else tags,
        replay_of=as_plain(spec.replay_of),
        unique=as_plain(spec.unique),
        unique_scope=scope,
        unique_s=period_s,
        replace=spec.replace,
    )
    if spec.expires_in_s is not None:
        new = structs.replace(new, expires_in_s=to_seconds(spec.expires_in_s))
    if spec.group is not None:
        check.group(spec.group)
        new = structs.replace(new, group=as_plain(spec.group))
    if spec.after is not None or spec.on_failed is not None or spec.batch_id is not None:
        if spec.on_failed is not None and not spec.after:
            raise InvalidRequestError("on_failed is for jobs that wait for others: give after too")
        new = structs.replace(
            new,
            after=_after_of(spec.after),
            on_failed=spec.on_failed,
            batch_id=as_plain(spec.batch_id),
        )
    check.new_job(new, UNLIMITED, UNLIMITED.max_payload_bytes)
    return new


def _after_of(after: After) -> tuple[str, ...]:
    """Return the ids of other jobs, each once."""
    if after is None or isinstance(after, str):
        return () if after is None else (str(after),)
    if not isinstance(after, Collection):
        # Not an iterator: a push that reads the archive first makes its jobs twice.
        message = f"after must be the id of a job or a list of them, got {type(after).__name__}"
        raise InvalidRequestError(message)
    return tuple(dict.fromkeys(map(as_plain, after)))


def scope_of(spec: JobSpec[Any]) -> tuple[UniqueScope | None, float | None]:
    """Return the scope of a unique job, None if it is the default, and its period."""
    scope = spec.unique_scope
    if scope == DEFAULT_SCOPE:
        return None, None
    if spec.unique is None:
        raise InvalidRequestError("unique_scope is for unique jobs: give unique too")
    if isinstance(scope, str):
        return scope, None
    return None, to_seconds(scope)

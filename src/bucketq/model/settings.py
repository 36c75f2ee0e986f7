"""What all processes of a queue must agree on; it lives in the object.

Every limit has a default that suits a queue of up to a hundred thousand jobs, and an error that
names the setting to change.
"""

import msgspec
from msgspec import Struct

from bucketq.errors import InvalidRequestError
from bucketq.model.records import Backoff

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class Settings(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings of a queue. A field that is not in the object has its default."""

    lease_s: float = 30.0
    """How long a worker may stay silent before its job goes to another."""
    heartbeat_s: float = 5.0
    """How often a worker sends a heartbeat."""
    grace_s: float = 15.0
    """The least that a lease has left after a new process begins to watch it."""
    clock_margin_s: float = 300.0
    """How wrong the clocks of two hosts may be before a short-lived process ends a lease early."""
    max_attempts: int = 5
    """How many failures and lost leases a job may have before it is dead."""
    backoff: Backoff = Backoff()
    """How long a failed job waits before it is tried again."""
    key_retention_s: float = 3600.0
    """How long an idempotency key is remembered."""
    max_keys: int = 100_000
    """How many idempotency keys are remembered at once."""
    max_jobs: int = 1_000_000
    """How many jobs that are not finished the queue holds."""
    max_bytes: int = 256 * MIB
    """How large the object may grow before a push is refused; finished jobs do not count, and may
    take as much again while they wait for the archive (64 MiB at least)."""
    max_payload_bytes: int = 64 * MIB
    """The largest payload, up to 5 GiB."""
    max_result_bytes: int = 64 * MIB
    """The largest result, up to 5 GiB."""
    inline_bytes: int = 64 * KIB
    """The largest payload or result that is written to the job itself, up to 1 MiB. A larger one
    becomes a side object in the queue's folder; this needs ``max_format`` 2."""
    max_error_bytes: int = 4 * KIB
    """The longest error text that is kept; more is cut."""
    max_errors: int = 5
    """How many errors a job remembers."""
    max_tags: int = 16
    """How many tags a job has."""
    max_kinds: int = 1000
    """How many kinds of jobs that are not finished the queue holds at once."""
    max_batch_jobs: int = 10_000
    """How many jobs go in one ``push_many``, ``claim``, ``heartbeat`` or page of ``jobs``."""
    max_batch_bytes: int = 64 * MIB
    """How many bytes of payload go in one ``push_many``."""
    max_dead: int = 10_000
    """How many dead jobs are kept for a redrive; beyond it the oldest are finished."""
    dead_retention_s: float = 14 * 86400.0
    """How long a dead job is kept for a redrive."""
    archive_after_s: float = 10.0
    """How long a finished job stays in the queue before it leaves for the archive, at least: while
    nothing else is committed up to 10 s more, or twice as long if that is less. It leaves sooner if
    finished jobs take more than a quarter of ``spill_bytes`` together."""
    archive_retention_s: float = 0.0
    """How long the archive keeps a finished job; 0: for ever."""
    result_retention_s: float = 3600.0
    """How long the result of an archived job, if it is not null, is found by reading one file of
    the archive; 0: not at all. After that ``wait`` searches the archive."""
    max_results: int = 100_000
    """How many results are found that way; beyond it the oldest are searched for."""
    history_retention_s: float = 0.0
    """How long the queue remembers what each commit changed; 0: not at all. It must not be longer
    than ``archive_retention_s``, unless that is 0."""
    history_bytes: int = GIB
    """How many bytes the history takes before the oldest of it is deleted."""
    session_retention_s: float = 600.0
    """How long a client's requests are remembered after its last one."""
    max_sessions: int = 4096
    """How many clients' requests are remembered at once."""
    max_tokens: int = 1000
    """How many access tokens there may be at once."""
    max_consumers: int = 1000
    """How many consumers there may be at once."""
    consumer_retention_s: float = 30 * 86400.0
    """How long a consumer without an open batch is remembered after it was last used."""
    max_writers: int = 10_000
    """How many writers are remembered at once."""
    writer_retention_s: float = 30 * 86400.0
    """How long a writer's position is remembered after it last published."""
    max_schedules: int = 1000
    """How many schedules there may be at once; every commit writes them."""
    max_limits: int = 10_000
    """How many limits there may be at once, and how many token buckets that are not full; every
    commit writes them. Beyond it, groups whose bucket is full wait until another one is."""
    max_batches: int = 1000
    """How many batches there may be at once; every commit writes them."""
    batch_retention_s: float = 86400.0
    """How long the counts of a batch are kept after it has ended."""
    max_held: int = 10_000
    """How many jobs may wait for others (``after``) at once; every commit writes them."""
    max_held_bytes: int = 8 * MIB
    """How many bytes they may take together."""
    max_audit: int = 1000
    """How many actions of operators are kept; every commit writes them."""
    max_workers: int = 1000
    """How many workers are listed at once."""
    worker_retention_s: float = 300.0
    """How long a worker is listed after it was last heard. Without a broker, workers write their
    rows five times in it."""
    reservation_retention_s: float = 86400.0
    """How long names for segments stay reserved if the process that writes them does not renew
    that. Then what it has written is deleted."""
    max_format: int = 1
    """The newest format of the object that may be written. Queues that older versions of bucketq
    have created have 1; ``bucketq upgrade`` raises it once every process has been upgraded."""
    spill_bytes: int = 256 * KIB
    """How many bytes of rows that are not running the object holds before the oldest move to
    segments; this needs ``max_format`` 2."""
    max_running_bytes: int = 32 * MIB
    """How many bytes running jobs take in the object before a claim finds no more: every commit
    writes them. One job is always handed out, however large it is."""
    require_token: bool = False
    """Whether brokers serve only clients that show a token; the first token switches it on."""


DEEP = Settings(max_format=2, max_jobs=100_000_000, max_bytes=64 * GIB, max_keys=10_000_000)
"""The settings of new queues. The limits of a queue that may not have segments are smaller, because
every commit writes all of it."""

_ZERO_ALLOWED = frozenset(
    {
        "archive_after_s",
        "archive_retention_s",
        "clock_margin_s",
        "grace_s",
        "history_retention_s",
        "max_dead",
        "max_errors",
        "max_tags",
        "result_retention_s",
    }
)
_HIGHEST_NUMBER = 1e9  # 31 years in seconds, or a billion rows: beyond any sensible limit.
# What is read and written as a whole is bounded by memory; there is no newer format than 2.
_HIGHEST: dict[str, float] = {
    "max_payload_bytes": 5 * GIB,
    "max_result_bytes": 5 * GIB,
    "inline_bytes": MIB,
    "max_error_bytes": MIB,
    "max_errors": 100,
    "max_batch_jobs": 100_000,
    "max_batch_bytes": 1024 * MIB,
    "max_bytes": 1024 * GIB,
    "history_bytes": 1024 * GIB,
    "max_format": 2,
}


def changed(settings: Settings, changes: dict[str, object]) -> Settings:
    """Return the settings with some changed; raises ``InvalidRequestError`` on a bad one."""
    if not changes:
        return settings
    known = Settings.__struct_fields__
    for name in changes:
        if name not in known:
            raise InvalidRequestError(
                f"unknown setting {name!r}; the settings are {', '.join(known)}"
            )
    try:
        new = msgspec.convert(msgspec.to_builtins(settings) | changes, Settings)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidRequestError(f"bad setting: {error}") from error
    check_backoff(new.backoff)
    for name in changes:
        value = getattr(new, name)
        if not isinstance(value, Backoff | bool):
            _check_number(name, value)
    if new.heartbeat_s >= new.lease_s:
        raise InvalidRequestError(
            f"heartbeat_s ({new.heartbeat_s:g}) must be smaller than lease_s ({new.lease_s:g}), "
            "or every lease runs out between two heartbeats"
        )
    _check_history(new)
    return new


def _check_history(new: Settings) -> None:
    if new.history_retention_s and new.max_format == 1:
        raise InvalidRequestError(
            "history needs max_format 2: run `bucketq upgrade` once every process has been "
            "upgraded; or set history_retention_s to 0"
        )
    if 0 < new.archive_retention_s < new.history_retention_s:
        raise InvalidRequestError(
            f"history_retention_s ({new.history_retention_s:g}) must not be larger than "
            f"archive_retention_s ({new.archive_retention_s:g}): jobs that the archive has deleted "
            "would still be in the history"
        )


def check_backoff(backoff: object) -> None:
    """Raise ``InvalidRequestError`` if a backoff is invalid."""
    if not isinstance(backoff, Backoff):
        raise InvalidRequestError(f"backoff must be a Backoff, got {type(backoff).__name__}")
    for name in ("base_s", "factor", "max_s"):
        value = getattr(backoff, name)
        if type(value) not in (int, float):
            raise InvalidRequestError(
                f"backoff {name} must be a plain number, got {type(value).__name__}"
            )
        if not abs(value) <= _HIGHEST_NUMBER:
            raise InvalidRequestError(f"backoff {name} must be at most {_HIGHEST_NUMBER:g}")
    if backoff.base_s < 0 or backoff.factor < 1 or backoff.max_s < 0:
        raise InvalidRequestError("a backoff needs base_s >= 0, factor >= 1 and max_s >= 0")


def _check_number(name: str, value: float) -> None:
    lowest = 0 if name in _ZERO_ALLOWED else 1e-3 if name.endswith("_s") else 1
    highest = _HIGHEST.get(name, _HIGHEST_NUMBER)
    if not lowest <= value <= highest:
        raise InvalidRequestError(
            f"{name} must be between {lowest:g} and {highest:.12g}, got {value!r}"
        )

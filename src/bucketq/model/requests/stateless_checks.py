"""Checks of what a request asks for that need no state, but perhaps settings.

Clients make them before they send it, and the queue makes them again, because a request may come
from any client. The decoder makes those of limits and schedules. Nothing here imports a state, so
that clients do not load it. ``check`` has the checks of single values and of new jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bucketq.errors import InvalidRequestError, PayloadTooLargeError, RejectedError
from bucketq.model import check
from bucketq.model.base import MAX_FOLLOW_UP_BYTES, MAX_FOLLOW_UPS, NewJob
from bucketq.model.id_hashes import unique_name
from bucketq.model.job_batches import Callback
from bucketq.model.limits import EVERY_GROUP, SetLimit
from bucketq.model.settings import MIB, Settings
from bucketq.model.tokens import MAX_TOKEN_NAME, RIGHTS

_MOST_RUNNING = 1_000_000
_MOST_STARTS = 100_000
"""The largest rate: with more starts in the shortest period, their distance would be a few
microseconds, which is as exact as times are."""
_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 1.0, 30 * 86400.0
"""A bucket of a longer period would be in the object for months."""
_SHORTEST_INTERVAL_S = 1.0
"""The shortest interval: what is due more often than a queue commits is work for a loop."""
_LONGEST_JITTER_S = 86400.0
"""The longest jitter: with more than a day, it would be unclear to which run a job belongs."""
_CRON_FIELDS = 5
_EIGHT_DIGITS = r"[0-9a-f]{8}"
_FORMAT = 2
"""The first format with a list of features."""


def check_follow_ups(jobs: Sequence[NewJob], settings: Settings) -> None:
    """Check what does not depend on other jobs. Raises ``InvalidRequestError`` and the like."""
    check_amount(len(jobs), 0)
    size_bytes = 0
    for job in jobs:
        size_bytes += check_follow_up(job, settings)
    check_amount(len(jobs), size_bytes)
    names = [name for job in jobs for name in names_of(job)]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise stands_twice(twice)


def check_amount(count: int, size_bytes: int) -> None:
    """Check how many jobs one completion pushes, and how many bytes their payloads have."""
    if count > MAX_FOLLOW_UPS:
        raise InvalidRequestError(
            f"more than {MAX_FOLLOW_UPS:,} jobs are pushed with one completion: push one job that "
            "pushes the others"
        )
    if size_bytes > MAX_FOLLOW_UP_BYTES:
        raise PayloadTooLargeError(
            f"the jobs that are pushed with one completion have more than {MAX_FOLLOW_UP_BYTES:,} "
            "bytes of payload, without those that are large: push fewer or smaller ones"
        )


def check_follow_up(job: NewJob, settings: Settings, most_bytes: int = MIB) -> int:
    """Check one job, and return how many bytes its payload has in the job.

    A client passes ``most_bytes``, because it has not written a large payload yet.
    """
    try:
        size_bytes = check.new_job(job, settings, most_bytes)
        if job.unique is not None:
            check_unique_settings(job, settings)
        if job.batch_id is not None or job.after:
            raise InvalidRequestError(
                "a job that is pushed with a completion cannot have batch_id or after: these may "
                "be refused, and a completion is not; push it before"
            )
    except RejectedError as error:
        # What the settings do not allow is the fault of this job, and not of the queue.
        if type(error) is RejectedError:
            raise InvalidRequestError(str(error)) from error
        raise
    return size_bytes


def names_of(job: NewJob) -> Iterator[tuple[str, str]]:
    """Yield what must be different in all jobs of a completion."""
    yield ("job id", job.id)
    if job.key is not None:
        yield ("idempotency key", job.key)
    if job.unique is not None:
        yield ("unique name", unique_name(job.kind, job.unique))


def stands_twice(name: tuple[str, str]) -> InvalidRequestError:
    """Return the error for a name that two jobs of a completion have."""
    return InvalidRequestError(f"{name[0]} {name[1]!r} stands twice in one completion")


def check_unique_settings(job: NewJob, settings: Settings) -> None:
    """Refuse a unique job that the settings of the queue do not allow."""
    if settings.max_format < _FORMAT:
        raise RejectedError(
            f"unique jobs need max_format {_FORMAT}: run `bucketq upgrade` once every process of "
            "the queue has been upgraded"
        )
    longest = settings.key_retention_s
    if job.unique_s is not None and job.unique_s > longest:
        raise InvalidRequestError(
            f"a unique name is remembered for up to {longest:g} seconds (key_retention_s), "
            f"not for {job.unique_s:g}; raise the setting, or shorten the period"
        )


def check_limit(operation: SetLimit) -> None:
    """Check a limit. Raises ``InvalidRequestError``."""
    check_target(operation.target)
    if operation.running is None and operation.rate is None:
        raise InvalidRequestError("a limit needs running, or a rate, or both")
    if (operation.rate is None) is not (operation.period_s is None):
        raise InvalidRequestError("a rate needs a number of starts and a period")
    if operation.running is not None:
        check.whole_number(operation.running, "running", 1, _MOST_RUNNING)
    if operation.rate is not None:
        check.whole_number(operation.rate, "rate", 1, _MOST_STARTS)
    if operation.period_s is not None:
        check.delay(operation.period_s, "the period of a rate")
        if not _SHORTEST_PERIOD_S <= operation.period_s <= _LONGEST_PERIOD_S:
            raise InvalidRequestError(
                f"the period of a rate must be between {_SHORTEST_PERIOD_S:g} second and "
                f"{_LONGEST_PERIOD_S / 86400:g} days, got {operation.period_s!r} seconds"
            )


def check_target(target: object) -> None:
    """Check what a limit holds for."""
    check.text(target, "the target of a limit")
    field, _, name = target.partition("=") if isinstance(target, str) else ("", "", "")
    if field == "kind":
        check.kind(name)
    elif field != "group":
        raise InvalidRequestError(
            f"a limit holds for kind=NAME, group=NAME, or group={EVERY_GROUP} for every group; "
            f"got {target!r}"
        )
    elif name != EVERY_GROUP:
        check.group(name)


def check_times(cron: str, timezone: str, every_s: float) -> None:
    """Check when a schedule is due, as far as that is possible without a library."""
    if bool(cron) is bool(every_s):
        raise InvalidRequestError("a schedule needs cron or every_s (more than 0), and not both")
    if not cron:
        check.delay(every_s, "every_s")
        if every_s < _SHORTEST_INTERVAL_S:
            raise InvalidRequestError(
                f"every_s must be at least {_SHORTEST_INTERVAL_S:g}, got {every_s!r}"
            )
        if timezone != "UTC":
            raise InvalidRequestError("timezone is for cron; an interval is the same everywhere")
        return
    check.name(cron, "cron")
    check.name(timezone, "timezone")
    if cron.split(" ") != cron.split() or len(cron.split()) != _CRON_FIELDS:
        raise InvalidRequestError(
            f"cron must have {_CRON_FIELDS} fields (minute, hour, day of the month, month, day of "
            f"the week) with one blank between them, got {cron!r}"
        )


def check_jitter(jitter_s: float) -> None:
    """Check how long a run may wait."""
    check.delay(jitter_s, "jitter_s")
    if jitter_s > _LONGEST_JITTER_S:
        raise InvalidRequestError(f"jitter_s must be at most {_LONGEST_JITTER_S:.0f} seconds")


def check_callback(job: NewJob) -> None:
    """Refuse options that the callback of a batch cannot have."""
    plain = NewJob(id=job.id, **{name: getattr(job, name) for name in Callback.__struct_fields__})
    for name in job.__struct_fields__:
        if getattr(job, name) != getattr(plain, name):
            raise InvalidRequestError(f"the job that a batch ends with cannot have {name}")


def check_token_id(token_id: object) -> None:
    """Check the id of a token. It is not shown, for it may be a whole token by mistake."""
    if not isinstance(token_id, str) or not re.fullmatch(_EIGHT_DIGITS, token_id):
        raise InvalidRequestError(
            "a token's id has 8 hexadecimal digits: give the middle of bq_<id>_<secret>, "
            "as `bucketq token list` shows it"
        )


def check_token_name(name: object) -> None:
    """Check the name of a token."""
    check.text(name, "token name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TOKEN_NAME or not name.isprintable():
        raise InvalidRequestError(
            f"a token's name must have 1 to {MAX_TOKEN_NAME} characters that can be printed"
        )


def check_rights(rights: tuple[object, ...]) -> None:
    """Check the rights of a token."""
    if not rights or any(right not in RIGHTS for right in rights):
        raise InvalidRequestError(f"a token needs one or more of the rights {', '.join(RIGHTS)}")

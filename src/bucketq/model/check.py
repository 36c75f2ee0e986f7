"""Validation of requests: the limits on everything that comes in, in one place.

Every function raises an ``InvalidRequestError`` or one of its siblings, which names the value,
the limit and, if there is one, the setting that holds it. They run for every job, so the most
frequent ones first test whether all is well, and look for the mistake only if it is not.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NoReturn, cast, get_args

import msgspec
from msgspec import Raw

from bucketq.errors import InvalidRequestError, PayloadError, PayloadTooLargeError, RejectedError
from bucketq.model.base import NewJob, Replacement, UniqueScope
from bucketq.model.limits import EVERY_GROUP
from bucketq.model.records import Encoding, OnFailed, Progress
from bucketq.model.settings import MIB, Settings, check_backoff

MAX_DEPTH = 100
"""How deep a payload may be nested; a parser that recurses must never be the limit."""
DEEP_BYTES = 2 * MAX_DEPTH
"""JSON that is nested deeper is longer, for each level has two brackets."""
_BLANK, _LINE_FEED, _RETURN = b" \n\r"
"""As integers, which ``in`` finds faster. JSON begins and ends with a larger byte than a blank."""
MAX_NAME = 256  # Names are written with every row.
MAX_AFTER = 1000  # A row has all of their ids: 30 KB.
RESERVED = "\x1f"
"""What no idempotency key of a user begins with: keys that the queue makes itself do."""
_MAX_KIND = 128  # Kinds are in the names of folders, which file systems limit to 255 bytes.
_LARGEST_PROGRESS = 2**53  # Every JSON reader holds it exactly.
MAX_GROUP = 128  # Groups are written with every row, and in the lists of every index.
_EXPIRY_FORMAT = (
    2  # Older code would hand out expired jobs, and an object of format 1 cannot say so.
)
_GROUP_FORMAT = 2  # Older code would not let groups take turns.
_SHOWN_LENGTH = 80  # An error shows about one line of a bad value, not all of it.
MAX_PRIORITY = 2**31  # Every JSON reader holds it exactly, also those with floats only.
MAX_INTEGER = 2**63 - 1  # The largest integer that the wire and other languages hold.
MAX_DELAY_S = 10 * 365 * 86400.0  # Ten years: what is longer is a mistake in the unit.
MAX_LEASE_S = 7 * 86400.0  # A lost worker blocks its job for this long.

_PUSH_IT = (
    "more than that cannot be in the job itself, and only `push`, `push_many` and `complete` put "
    "it beside the queue; otherwise put the data in an object of its own, and its address here"
)
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_decode_raw = msgspec.json.Decoder(Raw).decode
_STRINGS = rb'"(?:[^"\\]|\\.)*"'


def new_job(job: NewJob, settings: Settings, most_bytes: int = MIB) -> int:
    """Check a job that is to be pushed, and return how many bytes its payload has in the job.

    That is not more than ``most_bytes``: what is larger is a side object.
    """
    if has_options(job):
        options(job, settings)
    return plain_job(job, min(settings.max_payload_bytes, most_bytes))


def plain_job(job: NewJob, most_bytes: int) -> int:
    """Check what every job has, as ``new_job`` does."""
    name(job.id, "job id")
    kind(job.kind)
    if job.priority or type(job.priority) is not int:
        priority(job.priority)
    return body(job.payload, "payload", "max_payload_bytes", most_bytes)


def priority(value: int) -> None:
    """Reject what is not a priority."""
    whole_number(value, "priority", -MAX_PRIORITY, MAX_PRIORITY)


def has_options(job: NewJob) -> bool:
    """Whether a job has more than an id, a kind, a payload and a priority; most have not."""
    return not (
        job.delay_s is None
        and job.run_at is None
        and job.expires_in_s is None
        and job.max_attempts is None
        and job.backoff is None
        and job.key is None
        and job.unique is None
        and job.replace is None
        and job.group == ""
        and not job.after
        and job.batch_id is None
        and job.tags is None
        and job.replay_of is None
        and job.traceparent is None
        and job.payload_encoding is None
    )


def options(job: NewJob, settings: Settings) -> None:
    """Check the options of a job."""
    if job.delay_s is not None or job.run_at is not None or job.expires_in_s is not None:
        _when(job, settings)
    if job.max_attempts is not None or job.backoff is not None:
        _retries(job)
    if job.key is not None:
        _key(job.key)
    if job.unique is not None or job.replace is not None or job.group != "":
        _names(job, settings)
    if job.after or job.batch_id is not None:
        _links(job)
    if job.tags is not None:
        tags(job.tags, settings)
    if job.replay_of is not None:
        name(job.replay_of, "replay_of")
    if job.traceparent is not None:
        _traceparent(job.traceparent)
    if job.payload_encoding is not None:
        encoding(job.payload_encoding, "payload_encoding")


def _traceparent(value: object) -> None:
    if type(value) is not str or not _TRACEPARENT.fullmatch(value):
        _refuse("traceparent must be like 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def _when(job: NewJob, settings: Settings) -> None:
    if job.delay_s is not None and job.run_at is not None:
        _refuse("give delay_s or run_at, not both")
    if job.delay_s is not None:
        delay(job.delay_s)
    if job.run_at is not None:
        moment(job.run_at, "run_at")
    if job.expires_in_s is not None:
        _expiry(job, settings)


def _expiry(job: NewJob, settings: Settings) -> None:
    if settings.max_format < _EXPIRY_FORMAT:
        raise RejectedError(
            f"jobs that expire need max_format {_EXPIRY_FORMAT}: run `bucketq upgrade` once every "
            "process of the queue has been upgraded"
        )
    delay(job.expires_in_s, "expires_in_s")
    if not job.expires_in_s:
        _refuse("expires_in_s must be more than 0 seconds")
    if job.delay_s is not None and job.delay_s >= job.expires_in_s:
        _refuse(
            f"a job with a delay of {job.delay_s:g} seconds that expires in {job.expires_in_s:g} "
            "would never run: both are counted from its push"
        )


def _names(job: NewJob, settings: Settings) -> None:
    if job.unique is not None or job.replace is not None:
        _unique(job)
    if job.group == "":
        return
    group(job.group)
    if settings.max_format < _GROUP_FORMAT:
        raise RejectedError(
            f"jobs with a group need max_format {_GROUP_FORMAT}: run `bucketq upgrade` once every "
            "process of the queue has been upgraded"
        )


def group(value: object) -> None:
    """Check the name of a group."""
    name(value, "group")
    if not isinstance(value, str) or len(value) > MAX_GROUP or not value.isprintable():
        _refuse(f"bad group {_short(value)}: use 1 to {MAX_GROUP} characters that can be printed")
    if value == EVERY_GROUP:
        _refuse(f"a group cannot be called {EVERY_GROUP!r}, which stands for every group")


def _key(value: object) -> None:
    name(value, "idempotency key")
    if isinstance(value, str) and value.startswith(RESERVED):
        _refuse(f"an idempotency key cannot begin with {RESERVED!r}, got {_short(value)}")


def _unique(job: NewJob) -> None:
    if job.unique is None:
        _refuse("replace is for unique jobs: give unique too")
    name(job.unique, "unique")
    if job.unique_scope is not None and job.unique_scope not in get_args(UniqueScope):
        shown = ", ".join(map(repr, get_args(UniqueScope)))
        _refuse(
            f"the scope of a unique job is one of {shown}, or seconds; got {job.unique_scope!r}"
        )
    if job.unique_s is not None:
        if job.unique_scope is not None:
            _refuse("give unique_scope or unique_s, not both")
        delay(job.unique_s, "the period of a unique job")
        if not job.unique_s:
            _refuse("the period of a unique job must be more than 0 seconds")
    if job.replace is not None and job.replace not in get_args(Replacement):
        shown = ", ".join(map(repr, get_args(Replacement)))
        _refuse(f"replace is one of {shown}; got {job.replace!r}")


def _retries(job: NewJob) -> None:
    if job.max_attempts is not None:
        max_attempts(job.max_attempts)
    if job.backoff is not None:
        check_backoff(job.backoff)


def _links(job: NewJob) -> None:
    if job.batch_id is not None:
        name(job.batch_id, "batch_id")
    if job.on_failed is not None and not job.after:
        _refuse("on_failed is for jobs that wait for others: give after too")
    if job.on_failed is not None and job.on_failed not in get_args(OnFailed):
        _refuse(f"on_failed is 'run', or none; got {_short(job.on_failed)}")
    if type(job.after) is not tuple or len(job.after) > MAX_AFTER:
        _refuse(f"after must be the ids of up to {MAX_AFTER:,} jobs")
    for other in job.after:
        name(other, "a job id in after")
    if len(set(job.after)) < len(job.after) or job.id in job.after:
        _refuse("after must name different jobs, and not the job itself")


def kind(value: object) -> None:
    """Check the name of a kind."""
    if type(value) is str and len(value) <= _MAX_KIND and _is_kind(value):
        return
    if not isinstance(value, str) or not _KIND.fullmatch(value):
        _refuse(
            f"bad kind {_short(value)}: use 1 to 128 letters, digits and . _ : / @ -, "
            "beginning with a letter or digit"
        )
    _plain(value, "kind", str)


@lru_cache(maxsize=1024)
def _is_kind(value: str) -> bool:
    """Cached, because a queue has few kinds and checks one for each job."""
    return _KIND.fullmatch(value) is not None


def kinds(values: tuple[str, ...]) -> None:
    """Check the names of kinds that a request chooses by."""
    if len(values) > MAX_NAME:
        _refuse(f"{len(values)} kinds in one request, at most {MAX_NAME} are allowed")
    for value in values:
        kind(value)


def groups(values: tuple[str, ...]) -> None:
    """Check the names of groups that a request chooses by; an empty one stands for no group."""
    if len(values) > MAX_NAME:
        _refuse(f"{len(values)} groups in one request, at most {MAX_NAME} are allowed")
    for value in values:
        if value != "":
            group(value)


def name(value: object, what: str) -> None:
    """Check an id, a key or a worker's name."""
    if type(value) is str and 0 < len(value) <= MAX_NAME and value.isascii():
        return
    if not isinstance(value, str):
        _refuse(f"{what} must be a string, got {_short(value)}")
    if not value or len(value) > MAX_NAME:
        _refuse(f"{what} must have 1 to {MAX_NAME} characters, got {len(value)}")
    text(value, what)


def max_attempts(value: object) -> None:
    """Check how many failures and lost leases a job may have."""
    whole_number(value, "max_attempts", 1, 1_000_000)


def text(value: object, what: str) -> None:
    """Check that a value is a string that can be written as UTF-8."""
    if not isinstance(value, str):
        _refuse(f"{what} must be a string, got {_short(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{what} holds a lone surrogate at {error.start}, which is not valid text"
        ) from error
    _plain(value, what, str)


def tags(values: dict[str, str], settings: Settings) -> None:
    """Check a job's tags."""
    if not isinstance(values, dict):
        _refuse(f"tags must be a dictionary of strings, got {_short(values)}")
    if len(values) > settings.max_tags:
        _refuse(f"{len(values)} tags, at most {settings.max_tags} are allowed (max_tags)")
    for key, value in values.items():
        name(key, "tag")
        if not isinstance(value, str) or len(value) > MAX_NAME:
            _refuse(f"the value of tag {key!r} must be a string of up to {MAX_NAME} characters")
        text(value, f"tag {key!r}")


def whole_number(value: object, what: str, lowest: int, highest: int = MAX_INTEGER) -> None:
    """Check an integer."""
    if type(value) is int and lowest <= value <= highest:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(f"{what} must be a whole number, got {_short(value)}")
    if not lowest <= value <= highest:
        _refuse(f"{what} must be between {lowest} and {highest}, got {_short(value)}")
    _plain(value, what, int)


def delay(value: object, what: str = "delay_s") -> None:
    """Check a number of seconds to wait."""
    if type(value) is float and 0 <= value <= MAX_DELAY_S:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(f"{what} must be a number of seconds, got {_short(value)}")
    if not 0 <= value <= MAX_DELAY_S:
        _refuse(f"{what} must be between 0 and {MAX_DELAY_S:.0f} seconds, got {_short(value)}")


def lease(value: object) -> None:
    """Check how long a worker may be silent; None stands for what the settings say."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(f"lease_s must be a number of seconds, got {_short(value)}")
    if not 0 < value <= MAX_LEASE_S:
        _refuse(
            f"lease_s must be more than 0 and at most {MAX_LEASE_S:.0f} seconds, "
            f"got {_short(value)}"
        )


def moment(value: object, what: str) -> None:
    """Check a point in time."""
    if not isinstance(value, datetime):
        _refuse(f"{what} must be a datetime, got {_short(value)}")
    if value.utcoffset() is None:
        _refuse(f"{what} needs a time zone, for example datetime.now(UTC); got {value!r}")
    try:
        value.astimezone(UTC)
    except OverflowError:
        _refuse(f"{what} is too far away for UTC: {value!r}")
    _plain(value, what, datetime)


def body(value: object, what: str, setting: str, limit: int) -> int:
    """Check the size and the depth of a payload or a result, and return its size in bytes.

    It is written to the object unchanged, and one bad line there would corrupt all of it.
    """
    if not isinstance(value, Raw):
        _refuse(f"{what} must be encoded JSON, got {_short(value)}")
    raw = bytes(value)
    size_bytes = len(raw)
    if size_bytes > limit:
        advice = (
            _PUSH_IT
            if limit == MIB
            else "put the data in an object of its own, and its address here"
        )
        raise PayloadTooLargeError(
            f"{what} too large: {size_bytes:,} bytes, at most {limit:,} are allowed ({setting}); "
            f"{advice}"
        )
    if is_deep(raw):
        _refuse(f"{what} nested deeper than {MAX_DEPTH} levels: flatten it")
    try:
        _decode_raw(raw)
        if not raw.isascii():
            raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"{what} is not valid JSON: {error}") from error
    if raw[0] <= _BLANK or raw[-1] <= _BLANK or _LINE_FEED in raw or _RETURN in raw:
        raise PayloadError(
            f"{what} is JSON with line breaks or blanks around it: encode it on one line"
        )
    return size_bytes


def is_deep(raw: bytes) -> bool:
    """Whether JSON is nested deeper than a payload may be."""
    return len(raw) > DEEP_BYTES and _depth(raw) > MAX_DEPTH


def encoding(value: object, what: str) -> None:
    """Check how a payload or a result is written as JSON."""
    if value is not None and value not in get_args(Encoding):
        shown = ", ".join(map(repr, get_args(Encoding)))
        _refuse(f"unknown {what} {_short(value)}: it is one of {shown}, or none")


def _plain(value: object, what: str, shape: type) -> None:
    """Reject an instance of a subclass that the encoder cannot write."""
    if type(value) is shape:
        return
    try:
        msgspec.json.encode(value)
    except TypeError as error:
        name = type(value).__name__
        raise InvalidRequestError(
            f"{what} is of type {name}, which cannot be stored: pass a plain {shape.__name__}"
        ) from error


def _depth(raw: bytes) -> int:
    """Return how deep JSON is nested; 0 if it has too few brackets to be nested too deeply."""
    depth = deepest = 0
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return 0
    for byte in re.sub(_STRINGS, b"", raw):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_LENGTH else f"{shown[:_SHOWN_LENGTH]}..."


def _refuse(message: str) -> NoReturn:
    raise InvalidRequestError(message)


def progress(value: object) -> None:
    """Check how far a handler says that it has come."""
    if not isinstance(value, Progress):
        _refuse(f"progress must be a Progress, got {_short(value)}")
    total: object = 0 if value.total is None else value.total
    for name, number in (("done", value.done), ("total", total)):
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not abs(cast("float", number)) <= _LARGEST_PROGRESS:
            _refuse(f"{name} of a progress must be a number, got {_short(number)}")
    if type(value.note) is not str or len(value.note) > MAX_NAME:
        _refuse(f"the note of a progress must be a string of up to {MAX_NAME} characters")
    text(value.note, "the note of a progress")

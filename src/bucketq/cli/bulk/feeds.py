"""Sources of many jobs: the lines of a file, the lines of stdin, another queue.

A feed yields jobs in a fixed order, each with a *mark* from which it can resume after the job. The
id of a job is derived from the feed alone, so that pushing it again is recognised.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec
from msgspec import Raw, Struct, structs

from bucketq.cli.parsing import NotDecodableError, check_decodable, open_file
from bucketq.errors import InvalidRequestError, RejectedError
from bucketq.model import check
from bucketq.model.base import NewJob, Replacement, UniqueScope
from bucketq.model.operations import Snapshot
from bucketq.model.records import Backoff, Encoding, JobRecord, OnFailed
from bucketq.model.settings import Settings
from bucketq.model.side_objects import is_side, read_ref
from bucketq.queue.job import Job
from bucketq.queue.large.payload_copy import PayloadCopy
from bucketq.queue.push_options import DEFAULT_SCOPE, JobSpec, scope_of
from bucketq.queue.queue import Queue

# Bounds the memory of reading a file of any size.
_CHUNK_BYTES = 1024 * 1024


class Mark(NamedTuple):
    """A position in a feed: the offset, the number of the line or job, the jobs so far."""

    at: int = 0
    number: int = 0
    jobs: int = 0


class Item(NamedTuple):
    """A job of a feed, and the position after it."""

    spec: JobSpec[Any]
    size_bytes: int
    end: Mark
    has_made_id: bool
    """Whether the id was derived from the feed, so that no other producer uses it."""
    large: JobRecord | None = None
    """The job that it is a copy of, if the payload is not in that, and has to be copied first."""


class Feed(ABC):
    """Many jobs, in a fixed order."""

    name: str
    """Its name in messages."""
    digest: str
    """Changes with the content of the feed."""
    total: int | None = None
    """The number of lines or jobs, if known."""
    noun = "line"
    grows = False
    """Whether jobs may be added at the end."""

    @abstractmethod
    def items(self, start: Mark) -> Iterator[Item]:
        """Yield the jobs after a mark."""

    async def copy_payload(self, job: JobRecord) -> PayloadCopy:
        """Read the large payload of a job, for an item that says so."""
        raise NotImplementedError


@dataclass(frozen=True)
class Defaults:
    """Options of the command line that apply to all jobs of a feed."""

    kind: str | None = None
    """If given, each line is a payload. If not, each line is a job with its own kind."""
    priority: int | None = None
    delay_s: float | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    tags: dict[str, str] | None = None
    expires_in_s: float | None = None
    group: str | None = None
    batch_id: str | None = None
    kinds: tuple[str, ...] = ()
    """Only jobs of these kinds."""
    statuses: tuple[str, ...] = ("queued",)
    """Only jobs with these statuses, if a line has one."""

    @property
    def digest(self) -> str:
        """Part of the derived ids, so that other options make other jobs."""
        shaping = (self.kind, self.priority, self.delay_s, self.run_at, self.max_attempts)
        # Absent if it is not given, so that runs of older versions can be resumed.
        expiry = () if self.expires_in_s is None else (self.expires_in_s,)
        group = () if self.group is None else (f"group={self.group}",)
        batch = () if self.batch_id is None else (f"batch={self.batch_id}",)
        return msgspec.json.encode([*shaping, self.tags, *expiry, *group, *batch]).decode()

    @property
    def choice(self) -> str:
        """The options that must be the same when a run is resumed."""
        return f"{self.digest} {msgspec.json.encode([self.kinds, self.statuses]).decode()}"


class _Line(Struct, forbid_unknown_fields=True):
    """A job on a line: what can be pushed, or what a job's line in the object contains."""

    kind: str
    payload: Raw
    id: str | None = None
    payload_encoding: str | None = None
    priority: int | None = None
    delay_s: float | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    key: str | None = None
    tags: dict[str, str] | None = None
    unique: str | None = None
    unique_scope: str | float = DEFAULT_SCOPE
    replace: Replacement | None = None
    expires_in_s: float | None = None
    group: str | None = None
    batch_id: str | None = None
    after: tuple[str, ...] = ()
    on_failed: OnFailed | None = None
    status: str | None = None


_decode_line = msgspec.json.Decoder(_Line).decode
_RECORD_ONLY = frozenset(JobRecord.__struct_fields__) - frozenset(_Line.__struct_fields__)


class _LineReader:
    """Parses lines into jobs, whose ids are derived from ``run`` and the line number."""

    def __init__(self, name: str, run: str, defaults: Defaults) -> None:
        self._name = name
        # Other options and restarts make other jobs, so they are part of the ids too.
        self.run = blake2b(run.encode(), digest_size=8).hexdigest()
        self._defaults = defaults

    def items(self, lines: Iterable[bytes], start: Mark) -> Iterator[Item]:
        """Yield the jobs of lines, the first of which follows the mark."""
        mark = start
        for line in lines:
            mark = Mark(mark.at + len(line), mark.number + 1, mark.jobs)
            item = self._read(line.strip(), mark)
            if item is not None:
                mark = item.end
                yield item

    def _read(self, line: bytes, end: Mark) -> Item | None:
        """Parse a line; None if it is blank or not selected."""
        if not line:
            return None
        defaults = self._defaults
        try:
            found = self._parse(line)
            spec = _spec(found, found.id or f"{self.run}-{end.number}", defaults)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise InvalidRequestError(f"{self._name}, line {end.number}: {_why(error)}") from None
        if found.status is not None and found.status not in defaults.statuses:
            return None
        if defaults.kinds and found.kind not in defaults.kinds:
            return None
        if is_side(cast("Encoding | None", found.payload_encoding)):
            raise InvalidRequestError(
                f"{self._name}, line {end.number}: the payload is not on the line, which has only "
                "a reference to it; import from the address of the queue that has the job, use "
                "`bucketq archive replay` if it is in the archive, or put the payload on the line "
                "(`bucketq show --payload` writes it) without payload_encoding"
            )
        end = Mark(end.at, end.number, end.jobs + 1)
        return Item(spec, len(line), end, found.id is None and found.key is None)

    def _parse(self, line: bytes) -> _Line:
        kind = self._defaults.kind
        found = _fields(line) if kind is None else _Line(kind=kind, payload=Raw(line))
        check_decodable(found.payload)
        return found


def _fields(line: bytes) -> _Line:
    try:
        return _decode_line(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line, type=dict[str, Raw])
        if not _RECORD_ONLY & fields.keys():
            raise
        kept = {name: raw for name, raw in fields.items() if name not in _RECORD_ONLY}
        return _decode_line(msgspec.json.encode(kept))


class FileFeed(Feed):
    """The lines of a file, which is read once in advance for its digest and length."""

    def __init__(self, path: Path, defaults: Defaults, restarts: int) -> None:
        self.name = str(path)
        self._path = path
        content = blake2b(digest_size=16)
        self.total = 0
        last = b"\n"
        with open_file(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                content.update(chunk)
                self.total += chunk.count(b"\n")
                last = chunk[-1:]
        self.total += last != b"\n"
        self.digest = content.hexdigest()
        run = f"{self.digest}/{defaults.digest}/{restarts or ''}"
        self._reader = _LineReader(self.name, run, defaults)
        self.writer = f"bulk/{self._reader.run}"
        """Names the content of the file and the options, as the ids of its jobs do."""

    def items(self, start: Mark) -> Iterator[Item]:
        """Yield the jobs after a mark."""
        with open_file(self._path) as file:
            file.seek(start.at)
            yield from self._reader.items(file, start)


class StreamFeed(Feed):
    """Lines of a pipe, which cannot be read again. Ids are derived from ``run``."""

    def __init__(self, file: BinaryIO, defaults: Defaults, run: str) -> None:
        self.name = "stdin"
        self.digest = run
        self._file = file
        self._reader = _LineReader(self.name, f"{run}/{defaults.digest}/", defaults)

    def items(self, start: Mark) -> Iterator[Item]:
        """Yield all jobs; the mark is only a start for counting."""
        return self._reader.items(self._file, start)


class QueueFeed(Feed):
    """The jobs of another queue at one version, with their ids.

    The other queue has to stay open: large payloads are read when their jobs are pushed.
    """

    noun = "job"
    grows = True

    def __init__(
        self, name: str, snapshot: Snapshot, defaults: Defaults, other: Queue[Any]
    ) -> None:
        self.name = name
        self._other = other
        self.digest = snapshot.incarnation
        self._defaults = defaults
        self._jobs = [
            job
            for job in snapshot.jobs
            if job.status in defaults.statuses
            and (not defaults.kinds or job.kind in defaults.kinds)
        ]
        self.total = len(self._jobs)
        self._ids = {job.id for job in self._jobs}

    def items(self, start: Mark) -> Iterator[Item]:
        """Yield the jobs after a mark, in the order in which they were pushed."""
        jobs = (job for job in self._jobs if job.seq > start.at)
        for count, job in enumerate(jobs, start.jobs + 1):
            line = msgspec.convert(job, _Line, from_attributes=True)
            # Batches are those of the other queue, and so are jobs that are not copied.
            after = tuple(name for name in job.after if name in self._ids)
            on_failed = job.on_failed if after else None
            line = structs.replace(
                line, batch_id=None, after=after, on_failed=on_failed, group=job.group or None
            )
            spec = _spec(line, job.id, self._defaults)
            end = Mark(job.seq, count, count)
            if not is_side(job.payload_encoding):
                yield Item(spec, len(bytes(job.payload)), end, has_made_id=False)
            else:
                size_bytes = read_ref(job.payload, f"payload of job {job.id}").bytes
                yield Item(spec, size_bytes, end, has_made_id=False, large=job)

    async def copy_payload(self, job: JobRecord) -> PayloadCopy:
        """Read a large payload from the other queue."""
        copy = PayloadCopy(job.payload_encoding)
        async for chunk in self._other.open_payload(Job(job, Any)):
            copy.add(chunk)
        return copy


def parse_spec(text: str, what: str) -> JobSpec[Any]:
    """Parse one job as a line has it; ``what`` is what an error calls it."""
    try:
        line = _decode_line(text)
        spec = _spec(line, "", Defaults())
        value = spec.payload
        payload = msgspec.json.decode(value) if isinstance(value, Raw) else value
    except (msgspec.MsgspecError, UnicodeError, binascii.Error) as error:
        raise InvalidRequestError(f"{what}: {_why(error)}") from None
    return structs.replace(spec, id=line.id, payload=payload)


def check_item(name: str, item: Item, settings: Settings) -> NewJob:
    """Raise ``InvalidRequestError`` if the queue would reject the job; return it as pushed."""
    spec, payload = item.spec, item.spec.payload
    # Spelled out: several times as fast as ``queue.push_options``, and the payload is JSON already.
    job = NewJob(
        id=spec.id or "",
        kind=spec.kind,
        payload=payload if isinstance(payload, Raw) else Raw(b'"%b"' % base64.b64encode(payload)),
        priority=spec.priority,
        delay_s=cast("float | None", spec.delay_s),
        run_at=spec.run_at,
        max_attempts=spec.max_attempts,
        backoff=spec.backoff,
        key=spec.key,
        tags=spec.tags,
        unique=spec.unique,
        replace=spec.replace,
    )
    if spec.expires_in_s is not None:
        job = structs.replace(job, expires_in_s=cast("float", spec.expires_in_s))
    if spec.group is not None:
        job = structs.replace(job, group=spec.group)
    if spec.batch_id is not None or spec.after or spec.on_failed is not None:
        after = cast("tuple[str, ...]", spec.after or ())
        job = structs.replace(job, batch_id=spec.batch_id, after=after, on_failed=spec.on_failed)
    try:
        scope, period_s = scope_of(spec)
        if scope is not None or period_s is not None:
            job = structs.replace(job, unique_scope=scope, unique_s=period_s)
        check.new_job(job, settings, settings.max_payload_bytes)
    except RejectedError as error:
        raise InvalidRequestError(f"{name}, line {item.end.number}: {error}") from None
    return job


def _spec(line: _Line, job_id: str, defaults: Defaults) -> JobSpec[Any]:
    payload: Raw | bytes = line.payload
    if line.payload_encoding == "base64":
        payload = base64.b64decode(msgspec.json.decode(payload, type=str), validate=True)
    has_time = line.run_at is not None or line.delay_s is not None
    return JobSpec(
        kind=line.kind,
        payload=payload,
        id=job_id,
        priority=_first(line.priority, defaults.priority, 0),
        delay_s=line.delay_s if has_time else defaults.delay_s,
        run_at=line.run_at if has_time else defaults.run_at,
        max_attempts=_first(line.max_attempts, defaults.max_attempts, None),
        backoff=line.backoff,
        key=line.key,
        tags=_merged(defaults.tags, line.tags) if defaults.tags or line.tags else None,
        unique=line.unique,
        unique_scope=cast("UniqueScope | float", line.unique_scope),
        replace=line.replace,
        expires_in_s=_first(line.expires_in_s, defaults.expires_in_s, None),
        group=_first(line.group, defaults.group, None),
        batch_id=_first(line.batch_id, defaults.batch_id, None),
        after=line.after or None,
        on_failed=line.on_failed,
    )


def _merged(tags: dict[str, str] | None, own: dict[str, str] | None) -> dict[str, str]:
    return (tags or {}) | (own or {})


def _first(own: Any, default: Any, otherwise: Any) -> Any:
    return own if own is not None else default if default is not None else otherwise


def _why(error: Exception) -> str:
    if isinstance(error, binascii.Error):
        return f"the payload is not base64: {error}"
    if isinstance(error, msgspec.ValidationError):
        return (
            f'{error}; a line is a job like {{"kind": "email", "payload": ...}}, or a payload '
            "if the command names the kind"
        )
    return str(error) if isinstance(error, NotDecodableError) else f"not JSON: {error}"

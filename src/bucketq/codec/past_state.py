"""A version of a queue that is put together again from a copy and from what changed since.

It covers what a history covers: jobs without their leases, settings, and pauses. Jobs are kept as
fields that were not decoded, because most of them are replaced before they are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bucketq.model.history import UNSET, ChangeRecord
from bucketq.model.records import NOTHING, JobRecord
from bucketq.model.settings import Settings

_KNOWN = frozenset(JobRecord.__struct_fields__) - {"lease"}
_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_many = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_gone = msgspec.json.Decoder(list[tuple[str, int]]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_seq = msgspec.json.Decoder(int).decode
_decode_job = msgspec.json.Decoder(JobRecord).decode


class _PastHead(Struct):
    """The fields of the object itself that a history has; unknown ones are ignored."""

    settings: dict[str, Any] | None = None
    paused: bool | None = None
    paused_kinds: tuple[str, ...] | None = None


_decode_head = msgspec.json.Decoder(_PastHead).decode


class PastState:
    """A queue at one version."""

    def __init__(self, version: int = 0, at: datetime | None = None) -> None:
        """Begin without jobs."""
        self.version = version
        self.at = at
        """When the version was written; None: not known."""
        self.incarnation = ""
        self.settings = Settings()
        self.paused = False
        self.paused_kinds: tuple[str, ...] = ()
        self._jobs: dict[int, dict[str, Raw]] = {}

    def __len__(self) -> int:
        """How many jobs there are."""
        return len(self._jobs)

    def add(self, lines: Iterable[bytes]) -> None:
        """Add jobs of a copy, as lines."""
        for line in lines:
            fields = _decode_fields(line)
            self._jobs[_decode_seq(fields["seq"])] = fields

    def set_head(self, head: bytes) -> None:
        """Take settings and pauses, as far as they are given."""
        found = _decode_head(head)
        if found.settings is not None:
            known = Settings.__struct_fields__
            fields = {name: value for name, value in found.settings.items() if name in known}
            self.settings = msgspec.convert(fields, Settings)
        self.paused = self.paused if found.paused is None else found.paused
        self.paused_kinds = self.paused_kinds if found.paused_kinds is None else found.paused_kinds

    def step(self, change: ChangeRecord) -> None:
        """Move on to the next version.

        Raises:
            ValueError: It is not the next one.
        """
        if change.seq != self.version + 1:
            message = f"version {change.seq} does not follow version {self.version}"
            raise ValueError(message)
        for fields in jobs_of(change):
            unset = fields.pop(UNSET, None)
            job = self._jobs.setdefault(_decode_seq(fields["seq"]), {})
            job |= fields
            for name in () if unset is None else _decode_names(unset):
                job.pop(name, None)
        for _, seq in gone_of(change):
            del self._jobs[seq]
        if change.head is not NOTHING:
            self.set_head(bytes(change.head))
        self.version, self.at = change.seq, change.at

    def jobs(self) -> Iterator[JobRecord]:
        """Yield the jobs in the order of their pushes."""
        return (record_of(self._jobs[seq]) for seq in sorted(self._jobs))

    def job(self, job_id: str) -> JobRecord | None:
        """Return the job with an id; None: there is none."""
        wanted = _encode(job_id)
        for fields in self._jobs.values():
            if bytes(fields["id"]) == wanted:
                return record_of(fields)
        return None


def jobs_of(change: ChangeRecord) -> list[dict[str, Raw]]:
    """Return the jobs that a version changed: number, id and the fields that were changed."""
    return [] if change.jobs is NOTHING else _decode_many(change.jobs)


def gone_of(change: ChangeRecord) -> list[tuple[str, int]]:
    """Return the ids and numbers of the jobs that left with a version."""
    return [] if change.gone is NOTHING else _decode_gone(change.gone)


def record_of(fields: dict[str, Raw]) -> JobRecord:
    """Decode a job; fields that this code does not know are left out."""
    return _decode_job(_encode({name: fields[name] for name in fields if name in _KNOWN}))

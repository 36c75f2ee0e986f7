"""Large payloads and results as their rules define them: which references are accepted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from bucketq.errors import PayloadTooLargeError, UploadExpiredError
from bucketq.model.base import NewJob
from bucketq.model.operations import Complete, Completion
from bucketq.model.settings import Settings

INCARNATION = "test"
"""That of the queues of the machines."""
SIDE = ("object", "object-bytes")


class PayloadReference:
    """The part of the reference that knows side objects; it does not have them."""

    settings: Settings
    version: int

    def check_refs(self, jobs: Iterable[NewJob | Complete | Completion]) -> None:
        """Refuse a reference to what is too large, or may have been swept."""
        for job in jobs:
            if isinstance(job, NewJob):
                self._check(job.payload, job.payload_encoding, self.settings.max_payload_bytes)
            else:
                self._check(job.result, job.result_encoding, self.settings.max_result_bytes)
                self.check_refs(job.follow_ups)

    def _check(self, raw: Raw, encoding: str | None, most_bytes: int) -> None:
        if encoding not in SIDE:
            return
        ref = msgspec.json.decode(raw)
        incarnation, _, name = ref["object"].partition("/")
        if ref["bytes"] > most_bytes:
            raise PayloadTooLargeError
        if incarnation != INCARNATION or int(name[:20]) <= self.version:
            raise UploadExpiredError


def content(payload: bytes | Raw, encoding: str | None) -> Any:
    """What two payloads have in common that are the same: not the names of their objects."""
    if encoding not in SIDE:
        return bytes(payload)
    ref = msgspec.json.decode(payload)
    return (ref["digest"], ref["bytes"])

"""Gives jobs and results of the machines references to side objects."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from bucketq.model.side_objects import SideRef, object_name, write_ref
from tests.unit.model.reference_payloads import INCARNATION, SIDE

large = st.integers(0, 11)
"""Which reference: two contents, each under names with less or more time, and some that are
refused."""
_EXPIRED, _OF_ANOTHER_QUEUE, _TOO_LARGE = range(3)
_HUGE_BYTES = 1 << 40
_VERSIONS = (3, 1000)


class PayloadRules:
    """The part of a machine that names side objects."""

    named = 0
    """How many, so that no two names are the same."""

    def reference_to(self, number: int, version: int) -> dict[str, Any]:
        """Return the two fields of a payload that a client has written at a version."""
        self.named += 1
        digest = "ab"[number % 2] * 32
        until = version + (0 if number == _EXPIRED else _VERSIONS[number // 2 % 2])
        incarnation = "another" if number == _OF_ANOTHER_QUEUE else INCARNATION
        name = object_name(incarnation, until, digest, f"{self.named:016x}")
        size_bytes = _HUGE_BYTES if number == _TOO_LARGE else 70_000
        payload: Raw = write_ref(SideRef(name, size_bytes, digest))
        return {"payload": payload, "payload_encoding": SIDE[number // 4 % 2]}

    def result_of(self, result: Raw | int, version: int) -> dict[str, Any]:
        """Return the fields of a result, which may be large."""
        if not isinstance(result, int):
            return {"result": result}
        written = self.reference_to(result, version)
        return {"result": written["payload"], "result_encoding": written["payload_encoding"]}

    def place_payloads(self, jobs: list[dict[str, Any]], version: int) -> None:
        """Give jobs their payloads that are to have large ones."""
        for job in jobs:
            if (number := job.pop("large", None)) is not None:
                job.update(self.reference_to(number, version))

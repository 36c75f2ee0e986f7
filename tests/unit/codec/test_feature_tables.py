"""Values that no request can have set in tables of schedules, batches and waiting jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.errors import CorruptStateError
from bucketq.model.job_batches import CloseBatch
from bucketq.model.operations import Cancel, Redrive, Request
from bucketq.model.transitions import apply
from tests.compat import regenerate
from tests.unit.codec.objects import NOW, WHERE


def edited(name: str, table: str, index: int, **fields: Any) -> bytes:
    """A golden object with other values in one row."""
    content = json.loads(regenerate.path_of(name).read_bytes())
    content[table][index].update(fields)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("name", "table", "index", "fields", "reason"),
    [
        ("scheduled", "schedules", 1, {"every_s": 1e-9}, "every_s must be at least 1"),
        ("scheduled", "schedules", 1, {"every_s": 2.0**63}, "every_s must be between"),
        ("scheduled", "schedules", 1, {"every_s": -1}, "every_s must be between"),
        ("scheduled", "schedules", 1, {"every_s": 0}, "needs cron or every_s"),
        ("scheduled", "schedules", 0, {"cron": "0 3 * *"}, "cron must have 5 fields"),
        ("scheduled", "schedules", 0, {"jitter_s": -1.0}, "jitter_s must be between"),
        ("scheduled", "schedules", 0, {"jitter_s": 1e15}, "jitter_s must be"),
        ("expiring", "jobs", 0, {"expires_at": "2025-01-01T00:00:00"}, "a time without a zone"),
        ("linked", "jobs", 1, {"after": ["x", "x"]}, "waits for a job twice"),
        ("linked", "batches", 1, {"jobs": 3}, "counts that do not fit"),
    ],
)
def test_values_that_cannot_be_are_refused_with_the_place(
    name: str, table: str, index: int, fields: dict[str, Any], reason: str
) -> None:
    decode(edited(name, table, index), WHERE, accept=True)
    with pytest.raises(CorruptStateError) as caught:
        decode(edited(name, table, index, **fields), WHERE, accept=True)
    assert f"{table}[{index}]" in str(caught.value)
    assert reason in str(caught.value)


def test_a_batch_with_too_few_jobs_leaves_an_object_that_can_be_read() -> None:
    body = edited("linked", "batches", 0, jobs=1)
    state = decode(body, WHERE, accept=True).state
    members = [job.id for job in state.jobs if job.batch_id == "größe L"]
    assert members
    apply(state, Request(Redrive()), NOW)
    for job_id in members:
        apply(state, Request(Cancel(job=job_id)), NOW)
    apply(state, Request(CloseBatch(batch="größe L")), NOW)
    decode(Document(state).prepare("next").body, WHERE)

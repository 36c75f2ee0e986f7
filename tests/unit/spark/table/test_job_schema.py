"""Jobs as rows: each column as it is in the record, in the types that Spark expects."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from bucketq.model.records import NOTHING, Failure, JobRecord
from bucketq.model.side_objects import SideRef, object_name, write_ref
from bucketq.spark.table.job_schema import BATCH_ROWS, DDL, SCHEMA, job_batches

NOW = datetime(2026, 11, 15, 10, 30, 0, 123456, tzinfo=UTC)


def record(**fields: Any) -> JobRecord:
    given: dict[str, Any] = {
        "id": "a",
        "kind": "index",
        "status": "queued",
        "seq": 1,
        "payload": Raw(b'{"n":1}'),
        "pushed_at": NOW,
    }
    return JobRecord(**given | fields)


def row(**fields: Any) -> dict[str, Any]:
    [batch] = job_batches([record(**fields)])
    [found] = batch.to_pylist()
    assert isinstance(found, dict)
    return found


def test_the_columns_are_the_same_for_arrow_and_for_spark() -> None:
    schema = from_arrow_schema(SCHEMA)
    written = ",".join(column.replace(" ", ":", 1) for column in DDL.split(", "))
    assert schema.simpleString() == f"struct<{written}>"
    # What Spark compares the first batch with; any difference fails the query.
    assert to_arrow_schema(schema, timezone="UTC").equals(SCHEMA)


def test_a_json_payload_is_in_the_text_and_the_bytes_column() -> None:
    found = row(payload=Raw('{"n":"ü"}'.encode()))
    assert found["payload"] == '{"n":"ü"}'
    assert found["payload_bytes"] == '{"n":"ü"}'.encode()


def test_a_payload_of_bytes_is_only_in_the_bytes_column() -> None:
    raw = Raw(b'"%b"' % base64.b64encode(b"\x00\xff"))
    found = row(payload=raw, payload_encoding="base64")
    assert (found["payload"], found["payload_bytes"]) == (None, b"\x00\xff")


def test_a_missing_result_is_null_and_a_json_null_is_text() -> None:
    assert (row()["result"], row()["result_bytes"]) == (None, None)
    assert row(result=Raw(b"null"))["result"] == "null"


def test_times_are_exact_to_the_microsecond_and_in_utc() -> None:
    found = row(run_at=NOW)
    assert found["pushed_at"] == found["run_at"] == NOW
    assert found["pushed_at"].utcoffset().total_seconds() == 0
    assert found["claimed_at"] is None


def test_errors_are_oldest_first_and_the_last_has_its_own_column() -> None:
    errors = (Failure(NOW, 1, "failed", "one", "w"), Failure(NOW, 2, "lost", "two"))
    found = row(errors=errors)
    assert [each["error"] for each in found["errors"]] == ["one", "two"]
    assert found["error"] == "two"
    assert found["errors"][1] == {
        "at": NOW,
        "attempt": 2,
        "cause": "lost",
        "error": "two",
        "worker": None,
    }
    assert (row()["errors"], row()["error"]) == ([], None)


def test_tags_are_a_map() -> None:
    assert row(tags={"a": "1"})["tags"] == [("a", "1")]
    assert row()["tags"] == []


def test_a_group_is_a_column_and_null_if_there_is_none() -> None:
    assert (row(group="acme")["job_group"], row()["job_group"]) == ("acme", None)


def test_many_jobs_make_several_batches_and_none_make_none() -> None:
    jobs = [record(seq=number) for number in range(BATCH_ROWS + 1)]
    found = list(job_batches(jobs))
    assert [batch.num_rows for batch in found] == [BATCH_ROWS, 1]
    assert list(job_batches([])) == []


def read_singly(job: JobRecord) -> dict[str, Any]:
    """A row as the columns say that it is, made from one record alone."""
    fields = {name: getattr(job, name) for name in SCHEMA.names if hasattr(job, name)}
    for name in ("payload", "result"):
        raw, encoding = bytes(getattr(job, name)), getattr(job, f"{name}_encoding")
        fields[name] = None if encoding or not raw else raw.decode()
        fields[f"{name}_bytes"] = raw or None
        if encoding == "base64":
            fields[f"{name}_bytes"] = base64.b64decode(msgspec.json.decode(raw, type=str))
        body = fields[f"{name}_bytes"]
        fields[f"{name}_size"], fields[f"{name}_ref"] = None if body is None else len(body), None
        if encoding in ("object", "object-bytes"):
            ref = {**msgspec.json.decode(raw), "part_bytes": 1 << 20, "encoding": encoding}
            fields |= {f"{name}_bytes": None, f"{name}_size": ref["bytes"]}
            fields[f"{name}_ref"] = msgspec.json.encode(ref).decode()
    return fields | {
        "tags": list((job.tags or {}).items()),
        "error": job.errors[-1].error if job.errors else None,
        "errors": [msgspec.structs.asdict(each) for each in job.errors],
        "job_group": job.group or None,
        "batch_id": job.batch_id,
    }


REF = write_ref(SideRef(object_name("i", 9, "0" * 32, "1" * 16), 70_000, "0" * 32))
BODIES = st.sampled_from(
    [
        (Raw(b'{"n":"\xc3\xbc"}'), None),
        (Raw(b'"AP8="'), "base64"),
        (REF, "object"),
        (REF, "object-bytes"),
    ]
)
MOMENTS = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))]),
    min_value=datetime(1900, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
)
TIMES = st.none() | MOMENTS
COUNTS = st.integers(0, 2**31 - 1)
ERRORS = st.lists(st.builds(Failure, MOMENTS, COUNTS, st.just("failed"), st.text()))


@st.composite
def records(draw: st.DrawFn) -> JobRecord:
    payload, payload_encoding = draw(BODIES)
    result, result_encoding = draw(st.just((NOTHING, None)) | BODIES)
    return record(
        id=draw(st.text()),
        status=draw(st.sampled_from(["queued", "done"])),
        payload=payload,
        payload_encoding=payload_encoding,
        result=result,
        result_encoding=result_encoding,
        attempt=draw(COUNTS),
        max_attempts=draw(st.none() | COUNTS),
        run_at=draw(TIMES),
        finished_at=draw(TIMES),
        worker=draw(st.none() | st.text()),
        tags=draw(st.none() | st.dictionaries(st.text(), st.text(), max_size=2)),
        cancel_requested=draw(st.booleans()),
        errors=tuple(draw(ERRORS)),
    )


@given(st.lists(records(), min_size=1, max_size=5))
def test_batches_hold_what_single_rows_would_hold(jobs: list[JobRecord]) -> None:
    [batch] = job_batches(jobs)
    assert batch.to_pylist() == [read_singly(job) for job in jobs]

"""Objects that were written once are read for ever, and the format does not change by accident."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Raw, Struct, structs

import bucketq
from bucketq.codec.decode import decode
from bucketq.codec.layout import FORMAT
from bucketq.codec.segment_file import (
    decode_ids,
    decode_index,
    decode_seqs,
    encode_segment,
    segment_row,
)
from bucketq.codec.segment_lines import decode_jobs, split_block
from bucketq.errors import JobNotFoundError
from bucketq.model.audit_records import AuditRecord
from bucketq.model.base import NewJob
from bucketq.model.id_hashes import hash_id
from bucketq.model.job_batches import BatchRecord, Callback, ReadBatches
from bucketq.model.limits import BucketRecord, LimitRecord
from bucketq.model.numbered_batches import ConsumerRecord, WriterRecord
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Claim,
    Get,
    List,
    Push,
    ReadSnapshot,
    ReadStats,
    Request,
    Tidy,
)
from bucketq.model.records import (
    STATUSES,
    Backoff,
    BatchCounts,
    BrokerRecord,
    Failure,
    JobRecord,
    KeyRecord,
    Progress,
)
from bucketq.model.requests.sessions import Session
from bucketq.model.reservations import ReservationRecord
from bucketq.model.results import ResultRow
from bucketq.model.schedules import ScheduleRecord
from bucketq.model.segments import (
    Block,
    Line,
    SegmentClass,
    SegmentRecord,
    TidySegments,
)
from bucketq.model.state import State
from bucketq.model.tokens import RIGHTS, TokenRecord
from bucketq.model.transitions import apply
from bucketq.model.worker_records import WorkerRecord
from tests.compat import regenerate
from tests.compat.adopted_rows import adopted_ids, adopted_segment
from tests.compat.expiring_rows import expiring_at, expiring_segment
from tests.compat.large_rows import ARCHIVED_AT, FILM, TEXT
from tests.compat.limit_rows import limited_at, limited_segment
from tests.compat.states import FILES, pushed_segments, segments, vectors
from tests.compat.unique_rows import unique_at, unique_segment
from tests.unit.codec.objects import NOW, content_of
from tests.unit.model.deep_state import DeepState

HOW = (
    "the format has changed: if it is meant, give it a new number and keep reading the old one; "
    "before its first release, see tests/compat/regenerate.py"
)


def golden(name: str) -> bytes:
    return regenerate.path_of(name).read_bytes()


@pytest.mark.parametrize("name", [*FILES])
def test_a_golden_object_is_read_as_the_state_that_was_written(name: str) -> None:
    state = FILES[name].build()
    state.version += 1
    state.commits.append(FILES[name].commit)
    assert content_of(decode(golden(name), f"{name}.json").state) == content_of(state)


@pytest.mark.parametrize("name", [*FILES])
def test_the_same_state_is_written_with_the_same_bytes(name: str) -> None:
    assert regenerate.encode(name) == golden(name), HOW


@pytest.mark.parametrize("name", [*FILES])
def test_a_golden_object_that_was_read_is_written_again_as_it_was(name: str) -> None:
    document = decode(golden(name), f"{name}.json")
    state = document.state
    operators = (state.workers, state.audit, state.batches, state.results)
    bulk = (state.consumers, state.writers, state.reservations, state.schedules, *operators)
    state.cold.rows.is_touched = True
    for table in (state.jobs, state.keys, state.tokens, *bulk, state.sessions.table):
        table.touched.update(table.blocks)
    document.state.version -= 1
    document.state.commits.pop()
    assert document.prepare(FILES[name].commit).body == golden(name), HOW


def test_every_golden_file_is_tested() -> None:
    folders = [regenerate.FOLDER / f"format-{number}" for number in range(1, FORMAT + 1)]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert sorted(found) == sorted(regenerate.files())


@pytest.mark.parametrize("name", [*FILES])
def test_a_golden_object_says_its_format(name: str) -> None:
    assert golden(name).startswith(b'{"format":%d,' % FILES[name].format)


@pytest.mark.parametrize("cls", [*segments()])
def test_a_golden_segment_is_read_and_written_again_as_it_was(cls: SegmentClass) -> None:
    record, _ = segments()[cls]
    body = regenerate.segment_path(record.id).read_bytes()
    index = decode_index(record, body[-record.index :], record.id)
    lines = []
    for block in index.blocks:
        lines += split_block(block, cut(body, block), record.id)
    rows = [segment_row(line) for line in lines]
    assert encode_segment(cls, rows).body == body, HOW
    assert [row.fields.seq for row in rows] == [*decode_seqs(index, cut(body, index.seqs), "")]
    ids = decode_ids(index, cut(body, index.ids), "")
    for position, row in enumerate(rows):
        assert [*ids.find(hash_id(row.fields.id))] == [position]


@pytest.mark.parametrize("cls", [*segments()])
def test_the_same_rows_are_written_as_the_same_segment(cls: SegmentClass) -> None:
    record, body = segments()[cls]
    assert regenerate.segment_path(record.id).read_bytes() == body, HOW


def cut(body: bytes, part: Line | Block) -> bytes:
    return body[part.offset : part.offset + part.length]


READS: list[AnyOperation] = [
    List(limit=100),
    List(statuses=("dead",)),
    List(kinds=("mail",), limit=2),
    ReadSnapshot(),
    *(Get(job=f"job-{number}") for number in (1, 2, 64, 100, 101, 102, 111, 120, 121, 122, 300)),
]


@pytest.mark.parametrize("read", READS, ids=repr)
def test_a_golden_deep_queue_answers_like_one_that_holds_its_rows_itself(
    read: AnyOperation,
) -> None:
    deep, flat = golden_deep(), flat_state()
    expected = apply(flat, Request(read), NOW)
    found = deep.apply(Request(read), NOW)
    assert type(found.error) is type(expected.error)
    assert found.answer == expected.answer


def test_a_golden_deep_queue_counts_the_rows_of_its_segments() -> None:
    expected = apply(flat_state(), Request(ReadStats()), NOW).answer
    found = golden_deep().apply(Request(ReadStats()), NOW).answer
    assert found.counts == expected.counts
    assert found.oldest_queued_s == expected.oldest_queued_s


def golden_deep() -> DeepState:
    """The golden deep queue, with its segments in a store."""
    deep = DeepState(decode(golden("deep"), "deep.json").state)
    for entry in deep.state.cold.rows.segments.values():
        path = regenerate.segment_path(entry.record.id)
        deep.memory.bodies[entry.record.id] = path.read_bytes()
        if entry.record.vector:
            path = regenerate.segment_path(entry.record.vector)
            deep.memory.bodies[entry.record.vector] = path.read_bytes()
    return deep


@pytest.mark.parametrize("name", [*vectors()])
def test_the_same_positions_are_written_as_the_same_vector(name: str) -> None:
    assert regenerate.segment_path(name).read_bytes() == vectors()[name], HOW


def flat_state() -> State:
    """A state that holds the jobs of the deep queue itself."""
    state = golden_deep().state
    jobs = golden_deep().jobs()
    flat = State(incarnation=state.incarnation, created_at=state.created_at, jobs=jobs)
    flat.version, flat.settings, flat.paused = state.version, state.settings, state.paused
    flat.paused_kinds = state.paused_kinds
    return flat


@pytest.mark.parametrize("cls", [*pushed_segments()])
def test_the_same_push_is_written_as_the_same_segment(cls: SegmentClass) -> None:
    record, body = pushed_segments()[cls]
    assert regenerate.segment_path(record.id, "pushed").read_bytes() == body, HOW


def test_the_lines_of_a_golden_push_are_jobs_that_wait() -> None:
    found = dict[str, JobRecord]()
    for entry in decode(golden("pushed"), "pushed.json").state.cold.rows.segments.values():
        record = entry.record
        lines = regenerate.segment_path(record.id, "pushed").read_bytes().split(b"\n")
        jobs, _ = decode_jobs(lines[: record.rows], 0, record.id, record.pushed)
        found |= {job.id: job for job in jobs}
    assert {job_id: job.seq for job_id, job in found.items()} == {
        f"new-{place}": 400 + place for place in range(6)
    }
    assert {job.pushed_at.isoformat() for job in found.values()} == {
        "2024-05-17T08:30:49.500000+00:00"
    }
    assert {(job.status, job.attempt) for job in found.values()} == {("queued", 0)}
    assert found["new-2"].tags == {"größe": "L"}
    assert found["new-4"].tags is None
    assert found["new-5"].run_at == datetime(2024, 5, 18, 6, 43, 20, tzinfo=UTC)


def test_the_jobs_of_a_golden_bulk_write_are_found_by_their_ids() -> None:
    deep = DeepState(decode(golden("adopted"), "adopted.json").state)
    record, body = adopted_segment()
    assert regenerate.segment_path(record.id, "adopted").read_bytes() == body, HOW
    deep.memory.bodies[record.id] = body
    first, second, third = adopted_ids()
    found = {job: deep.apply(Request(Get(job=job)), unique_at(0)) for job in (first, third)}
    assert {job: each.result().seq for job, each in found.items()} == {first: 5, third: 7}
    assert isinstance(deep.apply(Request(Get(job=second)), unique_at(0)).error, JobNotFoundError)


def test_unique_names_of_a_golden_queue_are_found() -> None:
    deep = DeepState(decode(golden("unique"), "unique.json").state)
    record, body = unique_segment()
    assert regenerate.segment_path(record.id, "unique").read_bytes() == body, HOW
    deep.memory.bodies[record.id] = body
    names = {"user-7": "job-7", "größe L": "job-8", "user-2": "job-2", "größe S": "job-3"}
    job = NewJob(id="", kind="index", payload=Raw(b"1"))
    jobs = tuple(structs.replace(job, id=f"new {name}", unique=name) for name in names)
    assert deep.apply(Request(Push(jobs=jobs)), NOW).answer == tuple(names.values())
    again = structs.replace(job, id="x", unique="user-7", unique_s=60.0)
    assert deep.apply(Request(Push(jobs=(again,))), unique_at(60)).answer == ("job-7",)


def test_jobs_of_a_golden_queue_expire_in_their_time() -> None:
    deep = DeepState(decode(golden("expiring"), "expiring.json").state)
    record, body = expiring_segment()
    assert regenerate.segment_path(record.id, "expiring").read_bytes() == body, HOW
    deep.memory.bodies[record.id] = body
    tidied = [deep.apply(Request(each), expiring_at(62)) for each in (Tidy(), TidySegments())]
    assert [each.answer for each in tidied] == [1, 2]
    ended = {job.id for job in deep.state.jobs if job.outcome == "expired"}
    assert ended == {"job-7", "job-1", "job-2", "job-9"}
    (entry,) = (each.record for each in deep.state.cold.rows.segments.values())
    assert entry.expires_at == expiring_at(600)


def test_jobs_of_a_golden_queue_wait_and_are_counted() -> None:
    state = decode(golden("linked"), "linked.json").state
    assert apply(state, Request(ReadStats()), NOW).answer.held == {"index": 1}
    assert set(state.followed.waiting) == {"job-1", "job-4"}
    for name in ("job-1", "job-4"):
        apply(state, Request(Cancel(job=name)), NOW).result()
    assert not state.followed.waiting
    (batch, *_) = apply(state, Request(ReadBatches()), NOW).answer
    assert (batch.completed, batch.cancelled, batch.counts.open) == (1, 1, 1)


async def test_large_payloads_of_a_golden_queue_are_read(tmp_path: Path) -> None:
    for path, body in regenerate.files().items():
        if path.parts[len(regenerate.FOLDER.parts) + 1].startswith("large"):
            assert path.read_bytes() == body, HOW
            copy = tmp_path / path.relative_to(regenerate.FOLDER / "format-2")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(body)
    async with bucketq.connect((tmp_path / "large.json").as_uri(), mode="direct") as queue:
        jobs = await queue.claim(limit=4)
        assert {job.id: job.payload for job in jobs} == {
            "job-1": json.loads(TEXT),
            "job-2": FILM,
            "job-4": FILM,
        }
        assert [chunk async for chunk in queue.open_result("job-3")] == [TEXT[:16], TEXT[16:]]
        async with bucketq.open_archive((tmp_path / "large.json").as_uri()) as archive:
            until = ARCHIVED_AT + timedelta(seconds=1)
            completed, cancelled = [job async for job in archive.jobs(ARCHIVED_AT, until)]
        payload = [chunk async for chunk in queue.open_payload(completed)]
        assert payload == [FILM[:16], FILM[16:32], FILM[32:]]
        assert [chunk async for chunk in queue.open_result(completed)] == [TEXT[:16], TEXT[16:]]
        assert [chunk async for chunk in queue.open_payload(cancelled)] == [TEXT]


def test_the_golden_objects_hold_every_status_and_every_field_of_a_row() -> None:
    content = json.loads(golden("full"))
    jobs, failures = content["jobs"], [e for row in content["jobs"] for e in row.get("errors", [])]
    assert {row["status"] for row in jobs} == set(STATUSES)
    tokens = json.loads(golden("tokens"))["tokens"]
    assert {right for row in tokens for right in row["rights"]} == set(RIGHTS)
    del tokens[0]["news"]
    bulk = json.loads(golden("bulk"))
    del bulk["consumers"][0]["news"]
    limited = json.loads(golden("batch-limit"))["consumers"]
    del limited[0]["news"]
    apart = json.loads(golden("taken-apart"))["consumers"]
    del apart[0]["news"]
    ahead = json.loads(golden("prepared"))["consumers"][:1]
    del ahead[0]["news"]
    deep_ones = ("deep", "pushed", "expiring", "adopted")
    entries = [e for name in deep_ones for e in json.loads(golden(name))["segments"]]
    for entry in entries:
        entry.pop("news", None)
        entry["cls"] = entry.pop("class")
    reservations = json.loads(golden("reserved"))["reservations"]
    del reservations[0]["news"]
    schedules = json.loads(golden("scheduled"))["schedules"]
    del schedules[0]["news"]
    tenants = json.loads(golden("limited"))
    schedules += tenants["schedules"]
    linked = json.loads(golden("linked"))
    del linked["batches"][1]["news"]
    operated = json.loads(golden("operated"))
    del operated["workers"][0]["news"], operated["audit"][0]["news"]
    results = json.loads(golden("archived"))["results"]
    del results[2]["news"]
    come = json.loads(golden("progress"))["jobs"]
    snoozed, traced = (json.loads(golden(name))["jobs"] for name in ("snoozed", "traced"))
    named, expiring = (json.loads(golden(name))["jobs"] for name in ("unique", "expiring"))
    shapes: list[tuple[type[Struct], list[dict[str, object]]]] = [
        (
            JobRecord,
            [
                *(*jobs, *bulk["jobs"], *come, *snoozed, *traced, *named, *expiring),
                *(*tenants["jobs"], *linked["jobs"]),
            ],
        ),
        (LimitRecord, tenants["limits"]),
        (BucketRecord, tenants["buckets"]),
        (BatchRecord, linked["batches"]),
        (Callback, [row["on_done"] for row in linked["batches"] if "on_done" in row]),
        (BatchCounts, [row["done_batch"] for row in linked["jobs"] if "done_batch" in row]),
        (Progress, [row["progress"] for row in come]),
        (ConsumerRecord, [*bulk["consumers"], *limited, *apart, *ahead]),
        (WriterRecord, bulk["writers"]),
        (Failure, failures),
        (Backoff, [row["backoff"] for row in jobs if "backoff" in row]),
        (KeyRecord, content["keys"]),
        (Session, json.loads(golden("digests"))["sessions"]),
        (BrokerRecord, [content["broker"], json.loads(golden("tls"))["broker"]]),
        (TokenRecord, tokens),
        (SegmentRecord, entries),
        (ReservationRecord, reservations),
        (ScheduleRecord, schedules),
        (WorkerRecord, operated["workers"]),
        (AuditRecord, operated["audit"]),
        (ResultRow, results),
    ]
    for shape, rows in shapes:
        fields = {field for row in rows for field in row}
        assert fields == set(shape.__struct_fields__), f"a field of {shape.__name__} is not there"


def test_groups_of_a_golden_queue_take_turns_within_their_limits() -> None:
    deep = DeepState(decode(golden("limited"), "limited.json").state)
    record, body = limited_segment()
    assert regenerate.segment_path(record.id, "limited").read_bytes() == body, HOW
    deep.memory.bodies[record.id] = body
    claim = Request(Claim(worker="w", secret="5" * 32, limit=10))
    before = deep.apply(claim, limited_at(19)).answer
    assert [job.id for job in before] == ["job-5", "job-8", "job-2", "job-3", "job-9"]
    after = deep.apply(claim, limited_at(19.5)).answer
    assert [job.id for job in after] == ["job-1"]


def test_an_existing_golden_object_is_replaced_only_when_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(regenerate, "FOLDER", tmp_path)
    assert "empty.json: written" in regenerate.regenerate(replace=False)
    assert "empty.json: unchanged" in regenerate.regenerate(replace=True)
    path = regenerate.path_of("empty")
    path.write_bytes(b"precious")
    assert any("left as it is" in line for line in regenerate.regenerate(replace=False))
    assert path.read_bytes() == b"precious"
    assert "empty.json: replaced" in regenerate.regenerate(replace=True)
    assert path.read_bytes() == regenerate.encode("empty")

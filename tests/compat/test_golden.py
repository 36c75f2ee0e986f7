"""Objects that were written once are read for ever, and the format does not change by accident."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import Struct

from bucketq.codec import FORMAT, decode
from bucketq.model.numbered_batches import ConsumerRecord, WriterRecord
from bucketq.model.records import STATUSES, Backoff, BrokerRecord, Failure, JobRecord, KeyRecord
from bucketq.model.sessions import Session
from bucketq.model.tokens import RIGHTS, TokenRecord
from tests.compat import regenerate
from tests.compat.states import FILES
from tests.unit.codec.objects import content_of

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
    bulk = (state.consumers, state.writers)
    for table in (state.jobs, state.keys, state.tokens, *bulk, state.sessions.table):
        table.touched.update(table.blocks)
    document.state.version -= 1
    document.state.commits.pop()
    assert document.prepare(FILES[name].commit).body == golden(name), HOW


def test_every_golden_object_is_tested() -> None:
    folder = regenerate.FOLDER / f"format-{FORMAT}"
    assert sorted(path.stem for path in folder.iterdir()) == sorted(FILES)


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
    shapes: list[tuple[type[Struct], list[dict[str, object]]]] = [
        (JobRecord, [*jobs, *bulk["jobs"]]),
        (ConsumerRecord, [*bulk["consumers"], *limited]),
        (WriterRecord, bulk["writers"]),
        (Failure, failures),
        (Backoff, [row["backoff"] for row in jobs if "backoff" in row]),
        (KeyRecord, content["keys"]),
        (Session, json.loads(golden("digests"))["sessions"]),
        (BrokerRecord, [content["broker"], json.loads(golden("tls"))["broker"]]),
        (TokenRecord, tokens),
    ]
    for shape, rows in shapes:
        fields = {field for row in rows for field in row}
        assert fields == set(shape.__struct_fields__), f"a field of {shape.__name__} is not there"


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

"""The history in the object: a replay of its rows gives every version, and no secret is in them."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.codec.history_file import encode_copy
from bucketq.codec.past_state import PastState
from bucketq.errors import CorruptStateError, InvalidRequestError, NewerFormatError
from bucketq.model import settings as model_settings
from bucketq.model.base import NewJob
from bucketq.model.history import CopyRecord, DropChanges, ForgetHistory, NameCopy, client_of
from bucketq.model.operations import Cancel, Claim, Complete, Configure, Pause, Push, Request
from bucketq.model.outbox import Archived, ArchivedPart
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.codec.objects import NOW, WHERE, empty_state, second, small_state
from tests.unit.codec.random_commits import Player, Step, steps
from tests.unit.model.deep_state import DeepState

ON = {"history_retention_s": 3600.0}
MOVES = ("spill ready", "spill later", "spill dead", "merge ready", "tidy segments", "drop")


def document_with_history(state: State | None = None) -> Document:
    """A queue whose next version has a row."""
    document = Document(state or empty_state())
    document.state.settings = structs.replace(document.state.settings, max_format=2)
    apply(document.state, Request(Configure(changes=ON)), NOW).result()
    document.prepare("first", NOW)
    return document


def replay_of(state: State) -> PastState:
    """The version as which a state was read, without jobs."""
    past = PastState(state.version)
    past.settings = state.settings
    return past


def shown(jobs: list[JobRecord]) -> list[JobRecord]:
    return [structs.replace(job, lease=None) for job in jobs]


def push(name: str, **fields: Any) -> Request:
    job = NewJob(id=name, kind="mail", payload=msgspec.Raw(b'{"to":"ada"}'), **fields)
    return Request(Push(jobs=(job,)), session=f"session-of-{name}", number=1)


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(steps | st.tuples(st.sampled_from(MOVES), st.integers(0, 9)), max_size=8),
        min_size=1,
        max_size=8,
    )
)
@example(commits=[[("push", 2), ("spill ready", 1), ("claim", 1)]])
def test_a_replay_gives_the_same_queue_at_every_version(commits: list[list[Step]]) -> None:
    deep = DeepState(empty_state())
    document = document_with_history(deep.state)
    past, player = replay_of(deep.state), Player()
    for number, commit in enumerate(commits):
        for verb, argument in commit:
            if verb in MOVES or verb == "archive":
                _move(deep, verb, argument, player)
            else:
                deep.retry(lambda step=(verb, argument): player.play(deep.state, [step]))  # type: ignore[misc]
        body = document.prepare(f"commit-{number}", player.now).body
        row = next(reversed([*deep.state.history.changes]))
        assert (row.seq, row.id) == (deep.state.version, f"commit-{number}")
        past.step(row)
        assert list(past.jobs()) == shown(deep.jobs())
        assert past.settings == deep.state.settings
        assert (past.paused, past.paused_kinds) == (
            deep.state.paused,
            tuple(deep.state.paused_kinds),
        )
        read = decode(body, WHERE).state
        assert [*read.history.changes] == [*deep.state.history.changes]
        assert read.history.size_bytes == deep.state.history.size_bytes


def _move(deep: DeepState, verb: str, argument: int, player: Player) -> None:
    """Move rows to segments, or rows of the history away; neither changes the queue."""
    operation: Any
    if verb == "archive":
        done = [job for job in deep.state.jobs if job.status == "done"][: 1 + argument % 70]
        operation = Archived(parts=(ArchivedPart(tuple((job.id, job.seq) for job in done)),))
    elif verb == "drop":
        operation = DropChanges(last=max(1, deep.state.version - argument))
    elif verb == "tidy segments":
        return
    elif verb == "merge ready":
        operation = deep.merge("ready", player.now, 9)
    else:
        cls: Any = verb.removeprefix("spill ")
        operation = deep.spill(cls, player.now, 1 + argument)
    if operation is not None:
        deep.apply(Request(operation), player.now)


def test_a_row_names_requests_jobs_and_the_sender_but_no_secret() -> None:
    document = document_with_history()
    state = document.state
    apply(state, push("j1"), second(1), "token 0a1b2c3d").result()
    document.prepare("push", second(1))
    claim = Request(Claim(worker="w", secret="5" * 32), session="session-2", number=1)
    (job,) = apply(state, claim, second(2)).result()
    document.prepare("claim", second(2))
    done = Complete(job="j1", lease=job.lease, result=msgspec.Raw(b"null"))
    apply(state, Request(done, session="session-2", number=2), second(3)).result()
    body = document.prepare("complete", second(3)).body
    rows = msgspec.json.decode(body)["changes"]
    client = client_of("session-2")
    assert rows[0]["requests"] == [["push", client_of("session-of-j1"), ["j1"], "token 0a1b2c3d"]]
    assert rows[0]["jobs"][0]["payload"] == {"to": "ada"}
    assert rows[1] == {
        "id": "claim",
        "seq": 3,
        "at": "2024-05-17T12:00:02Z",
        "requests": [["claim", client, ["j1"]]],
        "jobs": [
            {
                "id": "j1",
                "seq": 1,
                "status": "running",
                "attempt": 1,
                "worker": "w",
                "claimed_at": "2024-05-17T12:00:02Z",
                "heartbeat_at": "2024-05-17T12:00:02Z",
            }
        ],
    }
    assert rows[2]["jobs"][0]["result"] is None
    text = msgspec.json.encode(rows)
    assert job.lease.encode() not in text
    assert b"session-" not in text


def test_history_is_off_by_default_and_costs_no_byte() -> None:
    document = Document(small_state())
    apply(document.state, push("j9"), NOW).result()
    assert document.state.recorder is None
    assert b'"changes"' not in document.prepare("commit-1").body


def test_switching_it_off_forgets_it_and_switching_it_on_begins_anew() -> None:
    document = document_with_history()
    apply(document.state, push("j1"), NOW).result()
    body = document.prepare("push", NOW).body
    assert b'"since":2' in body
    off = Request(Configure(changes={"history_retention_s": 0}))
    document = decode(body, WHERE)
    apply(document.state, off, NOW).result()
    body = document.prepare("off", NOW).body
    assert b'"changes"' not in body
    assert b'"since"' not in body
    apply(document.state, Request(Configure(changes=ON)), NOW).result()
    document.prepare("on", NOW)
    assert document.state.history.since == document.state.version + 1
    apply(document.state, Request(Pause()), NOW).result()
    content = msgspec.json.decode(document.prepare("pause", NOW).body)
    assert content["requires"] == ["history"]
    assert content["changes"][0]["head"] == {"paused": True, "paused_kinds": []}


def test_settings_that_would_outlive_the_archive_or_need_format_2_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="must not be larger than archive_retention_s"):
        model_settings.changed(
            Settings(max_format=2), {"history_retention_s": 61, "archive_retention_s": 60}
        )
    with pytest.raises(InvalidRequestError, match="bucketq upgrade"):
        model_settings.changed(Settings(), {"history_retention_s": 60})


def test_format_1_is_possible_again_once_history_is_off() -> None:
    document = document_with_history()
    state = document.state
    refused = apply(state, Request(Configure(changes={"max_format": 1})), NOW)
    assert "history" in str(refused.error)
    changes = {"max_format": 1, "history_retention_s": 0}
    apply(state, Request(Configure(changes=changes)), NOW).result()
    assert document.prepare("old", NOW).body.startswith(b'{"format":1,')


def test_lost_rows_raise_the_beginning_and_drop_copies_that_are_of_no_use() -> None:
    document = document_with_history()
    state = document.state
    for number in range(5):
        apply(state, push(f"j{number}"), NOW).result()
        document.prepare(f"commit-{number}", NOW)
        if number == 1:
            copy = CopyRecord(id=f"{2:020d}", seq=2, at=NOW, bytes=9, crc32="0" * 8)
            assert apply(state, Request(NameCopy(copy=copy, names=())), NOW).result()
    assert apply(state, Request(DropChanges(last=3)), NOW).result() == 2
    assert state.history.since == 2
    assert len(state.history.copies) == 1
    assert apply(state, Request(DropChanges(last=4, is_lost=True)), NOW).result() == 1
    assert state.history.since == 5
    assert not len(state.history.copies)
    decode(document.prepare("after", NOW).body, WHERE)
    assert apply(state, Request(ForgetHistory(before=99)), NOW).result() == state.version + 1
    decode(document.prepare("forgotten", NOW).body, WHERE)


def test_a_copy_is_named_only_while_all_that_it_names_is_named() -> None:
    deep = DeepState(empty_state())
    document = document_with_history(deep.state)
    apply(deep.state, push("j1"), NOW).result()
    spill = deep.spill("ready", NOW, 1)
    assert spill is not None
    deep.apply(Request(spill), NOW).result()
    document.prepare("spill", NOW)
    names = tuple(deep.state.cold.rows.names())
    copy = CopyRecord(id=f"{2:020d}", seq=2, at=NOW, bytes=9, crc32="0" * 8)
    deep.apply(Request(Cancel(job="j1")), NOW).result()
    document.prepare("cancel", NOW)
    assert not deep.state.cold.rows.names()
    assert not deep.apply(Request(NameCopy(copy=copy, names=names)), NOW).result()
    assert deep.apply(Request(NameCopy(copy=copy, names=())), NOW).result()
    assert not deep.apply(Request(NameCopy(copy=copy, names=())), NOW).result(), "only once"


def test_every_process_makes_the_same_copy_of_a_version() -> None:
    deep = DeepState(empty_state())
    document = document_with_history(deep.state)
    apply(deep.state, push("j1"), NOW).result()
    apply(deep.state, push("j2", run_at=second(9)), NOW).result()
    for cls in ("ready", "later"):
        spill = deep.spill(cls, NOW, 1)
        assert spill is not None
        deep.apply(Request(spill), NOW).result()
    body = document.prepare("spill", NOW).body
    assert encode_copy(decode(body, WHERE).state, NOW) == encode_copy(deep.state, NOW)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"requires":["history"],', b"", "does not fit"),
        (b'"requires":["history"],', b'"requires":["segments"],', "does not require"),
        (b'"since":2,', b"", "since when"),
        (b'"since":2,', b'"since":3,', "begins with 3"),
        (b'"id":"push","seq":2', b'"id":"push","seq":1', "of version 1, not 2"),
    ],
)
def test_an_inconsistent_history_is_refused(old: bytes, new: bytes, reason: str) -> None:
    document = document_with_history()
    apply(document.state, push("j1"), NOW).result()
    body = document.prepare("push", NOW).body
    assert old in body
    with pytest.raises(CorruptStateError, match=reason):
        decode(body.replace(old, new), WHERE, accept=True)


def test_older_code_refuses_an_object_with_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    body = document_with_history().prepare("second", NOW).body
    module = sys.modules["bucketq.codec.decode"]
    monkeypatch.setattr(module, "REQUIRED", frozenset({"segments"}))
    with pytest.raises(NewerFormatError, match="requires history"):
        decode(body, WHERE)

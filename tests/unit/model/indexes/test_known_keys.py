"""Idempotency keys in segments are recognised, counted and forgotten like those in the object."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.codec import segment_index
from bucketq.errors import KeyConflictError, QueueFullError
from bucketq.model.effects.operators import is_cold_untidy
from bucketq.model.indexes.cold_rows import ColdRowsNeededError
from bucketq.model.job_ids import job_id
from bucketq.model.operations import Configure, NoteTime, Push, ReadStats, Request, Tidy
from bucketq.model.records import AgreedTime
from bucketq.model.segments import Block, Merge, SpillKeys, TidySegments
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import START, new_job

HOUR = 3600.0


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three keys fill a block."""
    monkeypatch.setattr(segment_index, "BLOCK_BYTES", 400)


class Keys(DeepState):
    """A queue whose keys go to segments, and a clock."""

    def __init__(self) -> None:
        """Begin without keys."""
        super().__init__(State(incarnation="test", created_at=START))
        self.now = START

    def do(self, operation: Any) -> Any:
        """Apply an operation that must be granted."""
        return self.apply(Request(operation), self.now).result()

    def push(self, *keys: str, payload: object = None) -> tuple[str, ...]:
        """Push a job for each key, with an id that no other job has."""
        first = self.state.next_seq
        ids = [f"j{number}" for number in range(first, first + len(keys))]
        pairs = zip(ids, keys, strict=True)
        jobs = tuple(new_job(name, payload=payload, key=key) for name, key in pairs)
        answer: tuple[str, ...] = self.do(Push(jobs=jobs))
        return answer

    def push_each_second(self, count: int) -> None:
        """Push keys ``k1``, ``k2`` and so on, a second after each other."""
        for number in range(1, count + 1):
            self.now = START + timedelta(seconds=number)
            self.push(f"k{number}")

    def spill_all(self, count: int = 99) -> SpillKeys:
        """Move the oldest keys to a segment."""
        spill = self.spill_keys(self.now, count)
        assert spill is not None
        assert self.do(spill) == len(spill.keys)
        return spill

    def known(self) -> list[str]:
        """The keys that are known, each in one place."""
        return [key.id for key in self.all_keys()]

    def blocks_read(self) -> int:
        """How many blocks of rows were read."""
        return sum(isinstance(what, Block) for _, what in self.memory.read)

    def wait(self, seconds: float) -> None:
        """Let time pass, seen by all writers."""
        self.now += timedelta(seconds=seconds)
        self.state.time = AgreedTime(at=self.now)


@pytest.fixture
def keys() -> Keys:
    return Keys()


def test_a_key_in_a_segment_is_recognised(keys: Keys) -> None:
    keys.push_each_second(9)
    keys.spill_all()
    assert len(keys.state.keys) == 0
    assert keys.push("k3", "new", "k9") == ("j3", "j11", "j9")
    with pytest.raises(KeyConflictError, match="belongs to job j4"):
        keys.push("k4", payload="other")
    assert keys.known() == [*(f"k{number}" for number in range(1, 10)), "new"]


def test_the_numbers_of_keys_go_on_behind_those_in_segments(keys: Keys) -> None:
    keys.push_each_second(3)
    keys.spill_all(2)
    keys.push("k4")
    keys.spill_all()
    keys.push("k5", "k6")
    assert [(key.id, key.seq) for key in keys.state.keys] == [("k5", 5), ("k6", 6)]
    assert [key.seq for key in keys.all_keys()] == [1, 2, 3, 4, 5, 6]


def test_a_key_that_is_pushed_after_it_has_expired_leaves_its_segment(keys: Keys) -> None:
    keys.push_each_second(3)
    keys.spill_all()
    keys.wait(HOUR)
    assert keys.push("k2") == ("j4",)
    (segment,) = keys.state.cold.rows.segments.values()
    assert segment.entry().gone == ((1, 1),)
    assert [(key.id, key.seq, key.job) for key in keys.state.keys] == [("k2", 4, "j4")]
    assert keys.known() == ["k1", "k3", "k2"]
    keys.reload()
    assert keys.push("k2") == ("j4",)


def test_the_keys_of_one_push_are_asked_for_at_once(keys: Keys) -> None:
    keys.push_each_second(30)
    keys.spill_all(20)
    keys.spill_all()
    keys.reload()
    keys.memory.read.clear()
    rounds = 0
    push = Request(Push(jobs=tuple(new_job(f"j{n}", key=f"k{n}") for n in range(1, 31))))
    while True:
        try:
            answer = apply(keys.state, push, keys.now).result()
            break
        except ColdRowsNeededError as needed:
            keys.memory.fetch(needed.parts)
            rounds += 1
    assert answer == tuple(f"j{number}" for number in range(1, 31))
    assert keys.blocks_read() > 6
    assert rounds == 3, "indexes, hashes, rows"


@pytest.mark.parametrize("key", [None, "new"])
def test_a_push_with_an_id_of_its_request_does_not_look_for_it_in_segments(
    keys: Keys, key: str | None
) -> None:
    keys.push_each_second(3)
    spill = keys.spill("ready", keys.now, 3)
    assert keys.do(spill) == 3
    keys.spill_all()
    keys.reload()
    keys.memory.read.clear()
    made = replace(new_job(job_id("0" * 10, "s", 7, 0)), key=key)
    keys.apply(Request(Push(jobs=(made,)), "s", 7), keys.now).result()
    classes = {keys.state.cold.rows.segments[name].record.cls for name, _ in keys.memory.read}
    assert classes == ({"keys"} if key else set())
    assert keys.blocks_read() == 0


def test_keys_in_segments_are_counted(keys: Keys) -> None:
    keys.push_each_second(3)
    keys.spill_all(2)
    assert keys.do(ReadStats()).keys == 3
    keys.do(Configure(changes={"max_keys": 4}))
    keys.push("k4")
    with pytest.raises(QueueFullError, match="4 are remembered, 4 are allowed"):
        keys.push("k5")
    assert keys.push("k1") == ("j1",)


def test_keys_in_segments_that_have_expired_make_room(keys: Keys) -> None:
    keys.push_each_second(3)
    keys.spill_all()
    keys.do(Configure(changes={"max_keys": 3}))
    keys.wait(HOUR - 0.5)
    keys.push("k4", "k5")
    assert keys.known() == ["k3", "k4", "k5"]
    with pytest.raises(QueueFullError, match="3 are remembered"):
        keys.push("k6")


def test_keys_from_the_future_make_room(keys: Keys) -> None:
    keys.now = START + timedelta(days=3)
    keys.push("k1", "k2")
    keys.spill_all()
    keys.push("k3")
    keys.now = START
    keys.do(Configure(changes={"max_keys": 3}))
    keys.push("k4")
    assert keys.known() == ["k2", "k3", "k4"]
    keys.push("k5", "k6")
    assert keys.known() == ["k4", "k5", "k6"]


def test_a_segment_whose_keys_have_all_expired_is_dropped_unread(keys: Keys) -> None:
    keys.push_each_second(30)
    keys.spill_all()
    keys.push("hot")
    keys.wait(1.1 * HOUR)
    assert not is_cold_untidy(keys.state, keys.now), "many are dropped at a time"
    keys.wait(0.2 * HOUR)
    assert is_cold_untidy(keys.state, keys.now)
    assert keys.do(Tidy()) == 1
    assert keys.do(TidySegments()) == 30
    assert keys.known() == []
    assert keys.blocks_read() == 0
    assert not keys.state.cold.rows.segments
    assert not is_cold_untidy(keys.state, keys.now)


def test_of_a_segment_whose_first_keys_have_expired_few_blocks_are_read(keys: Keys) -> None:
    keys.push_each_second(100)
    keys.spill_all()
    keys.reload()
    keys.wait(HOUR - 30.5)
    assert keys.do(TidySegments()) == 69
    assert keys.known() == [f"k{number}" for number in range(70, 101)]
    assert len(next(iter(keys.state.cold.rows.indexes("keys")))[1].blocks) > 30
    assert keys.blocks_read() <= 6
    assert keys.do(TidySegments()) == 0


def test_a_key_from_the_future_does_not_keep_others_from_expiring(keys: Keys) -> None:
    keys.now = START + timedelta(days=300)
    keys.push("future")
    keys.push_each_second(6)
    keys.spill_all()
    keys.wait(2 * HOUR)
    assert is_cold_untidy(keys.state, keys.now)
    assert keys.do(TidySegments()) == 6
    assert keys.known() == ["future"]
    assert not is_cold_untidy(keys.state, keys.now)


def test_a_clock_that_is_ahead_does_not_expire_keys_in_segments(keys: Keys) -> None:
    keys.push_each_second(3)
    keys.spill_all()
    keys.do(NoteTime())
    keys.now += timedelta(days=1)
    assert not is_cold_untidy(keys.state, keys.now)
    assert keys.do(TidySegments()) == 0
    assert keys.known() == ["k1", "k2", "k3"]


def test_segments_that_were_not_read_are_due_by_the_time_of_their_writing(keys: Keys) -> None:
    keys.push_each_second(3)
    keys.spill_all()
    keys.reload()
    assert not is_cold_untidy(keys.state, keys.now)
    keys.wait(1.5 * HOUR)
    assert is_cold_untidy(keys.state, keys.now)
    keys.wait(-HOUR)
    assert keys.do(TidySegments()) == 0
    assert not is_cold_untidy(keys.state, keys.now)


def test_a_spill_of_keys_is_judged_when_it_is_named(keys: Keys) -> None:
    keys.push_each_second(4)
    spill = keys.spill_keys(keys.now, 4)
    later = keys.spill_keys(keys.now, 2)
    keys.state.forget_key("k1")
    keys.wait(2 * HOUR)
    keys.push("k3")
    assert keys.do(spill) == 2
    assert keys.known() == ["k2", "k4", "k3"]
    assert [key.id for key in keys.state.keys] == ["k3"]
    assert keys.do(spill) == keys.do(later) == 0
    assert keys.known() == ["k2", "k4", "k3"]


def test_segments_of_keys_are_merged_by_one_of_two_mergers(keys: Keys) -> None:
    keys.push_each_second(6)
    keys.spill_all(3)
    keys.spill_all()
    both, one = keys.merge("keys", keys.now, 9), keys.merge("keys", keys.now, 1)
    assert isinstance(both, Merge)
    keys.wait(2 * HOUR)
    keys.push("k5")
    assert keys.do(both) == 2
    assert keys.do(one) == keys.do(both) == 0
    assert keys.known() == ["k1", "k2", "k3", "k4", "k6", "k5"]
    assert len(keys.state.cold.rows.segments) == 1
    assert keys.push("k5") == ("j7",)
    assert keys.do(TidySegments()) == 5


@pytest.mark.parametrize("what", ["spill", "merge"])
def test_nothing_is_introduced_after_the_last_version_that_may(keys: Keys, what: str) -> None:
    keys.push_each_second(3)
    written: Any = keys.spill_keys(keys.now, 2)
    if what == "merge":
        keys.do(written)
        keys.spill_all()
        written = keys.merge("keys", keys.now, 9)
    record = (written.targets[0] if what == "merge" else written.segment).record
    keys.state.version = record.until
    assert keys.do(written) == 0
    keys.state.version -= 1
    assert keys.do(written) == 2
    assert keys.known() == ["k1", "k2", "k3"]


def test_a_state_with_keys_in_segments_requires_that_readers_know_them(keys: Keys) -> None:
    keys.push("k1")
    keys.spill_all()
    assert list(keys.state.requires) == ["segments"]
    assert ("segments", next(iter(keys.state.cold.rows.segments))) in keys.state.changes

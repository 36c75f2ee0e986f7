"""A queue whose jobs are in segments answers every request like one that holds them itself."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from msgspec import Raw
from msgspec.structs import asdict, replace

from bucketq.errors import LeaseLostError
from bucketq.model.effects.operators import is_cold_untidy
from bucketq.model.effects.pushes import may_grant
from bucketq.model.effects.reads import sample
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import List, Push, ReadStats, Request, Tidy
from bucketq.model.segments import (
    Merge,
    NameVector,
    SegmentClass,
    Spill,
    SpillKeys,
    TidySegments,
)
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import START
from tests.unit.model.operator_rules import chosen, pick
from tests.unit.model.test_machine import QueueMachine, plain

classes: st.SearchStrategy[SegmentClass] = st.sampled_from(["ready", "later", "dead"])


class DeepMachine(QueueMachine):
    """The same requests, also sent to a state that spills, merges and reloads."""

    def __init__(self) -> None:
        """Begin with an empty queue."""
        super().__init__()
        self.deep = DeepState(State(incarnation="test", created_at=START))
        for each in (self.model.state, self.twin.state, self.reference):
            each.settings = self.deep.state.settings
        self.written: list[Spill | SpillKeys | Merge | NameVector] = []
        self.news: dict[int, dict[str, Raw]] = {}
        self.push_size = 1

    @rule(size=st.integers(0, 3))
    def put_pushes_in_segments(self, size: int) -> None:
        """From now on; with 0, let them go through the object."""
        self.push_size = size

    def check(self, request: Request) -> None:
        """Send a request to all of them."""
        super().check(request)
        operation = request.operation
        if (
            self.push_size
            and isinstance(operation, Push | Publish)
            and may_grant(self.deep.state, operation, request)
        ):
            request = self.deep.write_push(request, self.now, self.push_size)
        deep = self.deep.apply(request, self.now)
        if isinstance(request.operation, Tidy):
            deep = self.tidy_segments(deep)
        if isinstance(self.last.error, LeaseLostError):  # Where the job is now is not looked up.
            assert isinstance(deep.error, LeaseLostError)
        else:
            assert type(deep.error) is type(self.last.error)
        assert plain(deep.answer) == plain(self.last.answer)
        found = [change for change in deep.changes if change[0] != "segments"]
        assert sorted(found) == sorted(self.last.changes)

    def tidy_segments(self, tidied: Applied) -> Applied:
        """Tidy the segments too: together it is what a state without segments does."""
        dropped = tidied.answer
        while is_cold_untidy(self.deep.state, self.now) or dropped != self.last.answer:
            applied = self.deep.apply(Request(TidySegments()), self.now)
            assert applied.changes, "it is not asked for without a reason"
            dropped += applied.answer
        return replace(self.last, answer=dropped)

    @rule(count=st.integers(1, 4), later=st.booleans())
    def spill_keys(self, count: int, later: bool) -> None:
        self.put(self.deep.spill_keys(self.now, count), later=later)

    @rule(cls=classes, count=st.integers(1, 4), later=st.booleans())
    def spill(self, cls: SegmentClass, count: int, later: bool) -> None:
        self.put(self.deep.spill(cls, self.now, count), later=later)

    @rule(cls=st.one_of(classes, st.just("keys")), count=st.integers(1, 4), later=st.booleans())
    def merge(self, cls: SegmentClass, count: int, later: bool) -> None:
        self.put(self.deep.merge(cls, self.now, count), later=later)

    @precondition(lambda self: len(list(self.deep.state.cold.rows.of_class("ready"))) > 1)
    @rule(later=st.booleans())
    def merge_claimable(self, later: bool) -> None:
        self.put(self.deep.merge("ready", self.now, 100), later=later)

    @rule(later=st.booleans())
    def shorten(self, later: bool) -> None:
        self.put(self.deep.vector(self.now), later=later)

    def put(self, written: Spill | SpillKeys | Merge | NameVector | None, *, later: bool) -> None:
        if written is not None:
            self.written.append(written)
        if not later:
            self.name_what_was_written(0)

    @rule(number=pick)
    def name_what_was_written(self, number: int) -> None:
        """Name a segment, maybe again, whatever has happened since it was written."""
        if self.written:
            written: Any = chosen(self.written, number)
            self.deep.apply(Request(written), self.now)

    @rule(reload=st.booleans())
    def commit(self, reload: bool) -> None:
        super().commit(reload)
        self.deep.state.version = self.state.version
        if reload:
            self.deep.reload()

    @rule(limit=st.integers(1, 5), after=st.integers(0, 6))
    def list_and_count(self, limit: int, after: int) -> None:
        page = Request(List(limit=limit, after=after))
        stats = Request(ReadStats())
        flat = apply(self.state, page, self.now)
        assert self.deep.apply(page, self.now).answer == flat.answer
        known, sampled = (sample(state, self.now) for state in (self.state, self.deep.state))
        unread = {"delayed", "oldest_queued_s", "bytes"}
        assert {**asdict(known), **dict.fromkeys(unread)} == {
            **asdict(sampled),
            **dict.fromkeys(unread),
        }
        if sampled.oldest_queued_s is not None:
            assert sampled.oldest_queued_s == known.oldest_queued_s
        shallow, deep = apply(self.state, stats, self.now), self.deep.apply(stats, self.now)
        assert deep.answer.counts == shallow.answer.counts
        assert deep.answer.oldest_queued_s == shallow.answer.oldest_queued_s
        assert deep.answer.keys == shallow.answer.keys

    @rule(number=pick)
    def let_newer_code_add_a_field(self, number: int) -> None:
        if hot := list(self.deep.state.jobs):
            job = chosen(hot, number)
            self.news[job.seq] = {"news": Raw(b"%d" % number)}
            self.deep.state.extra["jobs", job.id] = self.news[job.seq]

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        assert self.deep.jobs() == list(self.state.jobs)

    @invariant()
    def rows_and_bytes_in_segments_are_counted(self) -> None:
        rows = self.deep.state.cold.rows
        segments = rows.segments.values()
        live = {each: each.record.rows - self.deep.gone_from(each).count for each in segments}
        for cls in ("ready", "later", "dead", "keys"):
            assert rows.count(cls) == sum(live[each] for each in rows.of_class(cls))
        slow = (each.record.bytes // each.record.rows * count for each, count in live.items())
        assert rows.live_bytes == sum(slow)

    @invariant()
    def every_key_is_in_one_place(self) -> None:
        deep = [(key.id, key.job, key.digest, key.at) for key in self.deep.all_keys()]
        assert deep == [(key.id, key.job, key.digest, key.at) for key in self.state.keys]

    @invariant()
    def dead_jobs_are_counted(self) -> None:
        assert self.deep.state.dead_count == self.state.dead_count == len(self.state.dead)

    @invariant()
    def unknown_fields_stay_with_their_jobs(self) -> None:
        there = {job.seq for job in self.state.jobs}
        expected = {seq: news for seq, news in self.news.items() if seq in there}
        assert self.deep.unknown_fields() == expected


DeepMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    phases=set(Phase) - {Phase.explain},
)
TestDeepMachine = DeepMachine.TestCase

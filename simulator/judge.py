"""The judge of a simulation: follows its chain of commits, and checks all answers at its end.

A promise that the chain breaks ends a simulation at once: what happens later would prove no more.
"""

from __future__ import annotations

from bucketq.model.state import State
from simulator.archived_jobs import ArchivedJobs
from simulator.call_log import CallLog
from simulator.invariants.expiry_invariants import follow_expiry
from simulator.invariants.follow_up_invariants import FollowUpTracker
from simulator.invariants.history_invariants import HistoryTracker
from simulator.invariants.limit_invariants import LimitTracker, check_turns
from simulator.invariants.link_invariants import LinkTracker
from simulator.invariants.operator_invariants import check_drains, follow_operators
from simulator.invariants.payload_invariants import PayloadTracker
from simulator.invariants.queue_invariants import CommitChain, check_answers, check_version
from simulator.invariants.result_invariants import ResultTracker
from simulator.invariants.schedule_invariants import ScheduleTracker
from simulator.invariants.unique_invariants import UniqueTracker, check_unique
from simulator.invariants.wait_invariants import check_waits

_DEEP_BYTES = 1000
"""What deep worlds spill at most; their processes sweep all the time."""


class Judge:
    """Checks safety; raises ``InvariantError`` at the first violation."""

    def __init__(self, history: CallLog) -> None:
        """Judge the commits and calls of a simulation that begins."""
        self._history = history
        self._tracker = HistoryTracker(history.store, history.key)
        self._archive = ArchivedJobs(history)
        self._unique = UniqueTracker()
        self._payloads = PayloadTracker(history.store)
        self.schedules = ScheduleTracker()
        self._limits = LimitTracker()
        self._links = LinkTracker()
        self._results = ResultTracker(history.store, history.key)
        self.follow_ups = FollowUpTracker(history.pushing)
        self._version = 0
        self._state: State | None = None
        self._chain = CommitChain(
            history,
            archived=self._archive.copies,
            segments=self._tracker.segments.counts,
            past=self._tracker.counts,
        )

    def follow(self) -> None:
        """Check the commits since the last call."""
        chain, tracker = self._chain, self._tracker
        self._archive.follow()
        for commit in self._history.store.history(self._history.key)[self._version :]:
            self._version = version = self._version + 1
            if commit.body is None or commit.operation not in ("create", "replace"):
                what = f"{commit.operation} of the queue object"
                chain.violate("conditional writes", what, version)
            queue, reason = tracker.follow(version, commit)
            if reason is not None:
                chain.violate(*reason, version)
            state = queue.whole
            for reason in (
                self._unique.follow(self._state, state),
                follow_expiry(self._state, state),
                self._payloads.follow(version, commit.number, state),
                self.schedules.follow(self._state, state),
                self._limits.follow(self._state, state),
                follow_operators(self._state, state),
                self._links.follow(self._state, state),
                self._results.follow(version, commit.number, queue.head),
                self.follow_ups.follow(self._state, state),
            ):
                if reason is not None:
                    chain.violate(*reason, version)
            check_version(chain, version, self._state, state, has_moved=tracker.has_changed)
            self._state = state

    def _finish_payloads(self) -> None:
        archived = [job for copies in self._archive.copies.values() for _, job in copies]
        versions = [commit.time_s for commit in self._history.store.history(self._history.key)]
        state = self._state
        is_swept = state is not None and state.settings.spill_bytes <= _DEEP_BYTES
        reason = self._payloads.finish(archived, versions, is_swept=is_swept)
        if reason is not None:
            self._chain.violate(*reason)

    def finish(self) -> CommitChain:
        """Check the rest, and all answers; return what was collected."""
        self.follow()
        self._chain.final = self._state
        if (reason := self._tracker.finish()) is not None:
            self._chain.violate(*reason)
        self._finish_payloads()
        check_answers(self._chain)
        check_waits(self._chain, self._history)
        check_unique(self._chain, self._history)
        check_turns(self._chain, self._history)
        check_drains(self._chain, self._history)
        return self._chain

"""Checks of consumers and writers, against the chain of commits and the recorded calls.

A batch number of a consumer stands for one set of jobs, except that jobs leave it when they are
settled. Only the driver that opened the consumer
last claims and closes batches, and a batch is closed only if a driver asks for it. An acknowledged
batch is completed, once, and nothing else with it. A job that is reserved for the next batch is
its own, and if it leaves that reservation it has lost no attempt.
A position of a writer is published once, and an acknowledged position is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from bucketq.errors import ConsumerFencedError
from bucketq.model.effects.attempts import lease_of
from bucketq.model.numbered_batches import BatchState, ConsumerRecord
from bucketq.model.side_objects import is_side
from bucketq.model.state import State
from simulator.call_log import CallLog, RecordedCall
from simulator.invariants.broker_invariants import Violation

_ONE_SET = "a batch number stands for one set of jobs"
_FENCED = "an older driver is fenced"


@dataclass(frozen=True)
class Closing:
    """When a batch was closed, and the epochs of the consumer before and after that commit.

    The epochs differ if another driver opened the consumer in the same commit.
    """

    version: int
    first_epoch: int
    last_epoch: int


@dataclass(frozen=True)
class _ConsumerVersion:
    """A consumer after a commit, and its epoch before that commit."""

    row: ConsumerRecord
    first_epoch: int


@dataclass
class ConsumerTracker:
    """The consumers of one chain of commits, collected in one pass."""

    sets: dict[tuple[str, int], list[tuple[str, ...]]] = field(default_factory=dict)
    """The jobs of each batch, and what was left of them each time that some were settled."""
    closings: dict[tuple[str, int], Closing] = field(default_factory=dict)
    rows: dict[str, list[tuple[int, ConsumerRecord]]] = field(default_factory=dict)
    """The records of each consumer, each with the version that it appeared in."""
    born: dict[str, int] = field(default_factory=dict)
    """The version in which the job with each payload was pushed."""
    completed: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The version in which each job was completed, and by which worker."""

    def follow(self, version: int, before: State | None, state: State) -> Violation | None:
        """Add the next commit; return a violation, or None."""
        known = before.jobs.by_id if before else {}
        for job in state.jobs:
            if job.id not in known and not is_side(job.payload_encoding):
                self.born.setdefault(msgspec.json.decode(job.payload, type=str), version)
        for job in state.done:
            if job.outcome == "completed" and job.id not in self.completed:
                self.completed[job.id] = (version, job.worker or "")
        if before is not None and (violation := _check_reserved(before, state)) is not None:
            return violation
        for row in state.consumers:
            old = before.consumers.get(row.id) if before else None
            if row == old:
                continue
            self.rows.setdefault(row.id, []).append((version, row))
            if before is not None and old is not None and _is_settling(before, state, old, row):
                self.sets.setdefault((row.id, row.batch), [old.jobs]).append(row.jobs)
                continue
            violation = self._step(version, old, row)
            if violation is not None:
                return violation
        return None

    def _step(
        self, version: int, old: ConsumerRecord | None, row: ConsumerRecord
    ) -> Violation | None:
        if old is not None and (row.epoch < old.epoch or row.batch < old.batch):
            return "epochs and batches rise", f"{row.id}: {old} became {row}"
        if old is not None and old.is_open and (row.batch, row.jobs) != (old.batch, old.jobs):
            closing = Closing(version, old.epoch, row.epoch)
            self.closings.setdefault((row.id, old.batch), closing)
            if row.is_open and row.batch == old.batch:
                return _ONE_SET, f"{row.id} {row.batch}: {old.jobs} became {row.jobs}"
        if row.is_open:
            jobs = self.sets.setdefault((row.id, row.batch), [row.jobs])[-1]
            if jobs != row.jobs or (row.id, row.batch) in self.closings:
                return _ONE_SET, f"{row.id} {row.batch}: {jobs} came again as {row.jobs}"
        return None

    def check_calls(
        self, history: CallLog, known_since: Callable[[RecordedCall], int]
    ) -> Iterator[tuple[Violation, int]]:
        """Check all calls; yield each violation, with its version."""
        asked: dict[tuple[str, int], int] = {}
        for call in history.calls:
            violation = self.check_call(history, call, known_since(call))
            if violation is not None:
                yield violation, call.ended_version
            closed = call.detail.get("acked" if call.verb == "claim_batch" else "batch")
            if call.verb in ("ack_batch", "release_batch", "claim_batch") and closed:
                asked.setdefault((call.detail["consumer"], closed), call.began_version)
        for name, closing in self.closings.items():
            if asked.get(name, closing.version) >= closing.version:
                yield ("a batch is closed only if a driver asks for it", str(name)), closing.version

    def check_call(
        self, history: CallLog, call: RecordedCall, known_since: int
    ) -> Violation | None:
        """Check the answer to one call."""
        if isinstance(call.error, ConsumerFencedError):
            epochs = [moment.row.epoch for moment in self._moments(call, 0)]
            if max(epochs, default=0) <= call.detail["epoch"]:
                return "a driver is fenced only by another driver", str(call)
        violation: Violation | None = None
        if call.verb == "publish":
            violation = self._check_published(history, call)
        elif call.succeeded and call.verb == "claim_batch":
            violation = self._check_claim(call, known_since)
        elif call.succeeded and call.verb == "settle_batch":
            violation = self._check_settled(call)
        elif call.succeeded and call.verb == "read_batch":
            violation = self._check_read(call)
        elif call.succeeded and call.verb in ("ack_batch", "release_batch"):
            violation = self._check_closed(call, call.answer, is_ack=call.verb == "ack_batch")
        return violation

    def _moments(self, call: RecordedCall, first: int) -> list[_ConsumerVersion]:
        """The versions of the consumer of a call, from ``first`` to the end of the call."""
        rows = self.rows.get(call.detail["consumer"], [])
        moments = []
        for index, (version, row) in enumerate(rows):
            end = rows[index + 1][0] if index + 1 < len(rows) else call.ended_version + 1
            if version <= call.ended_version and end > first:
                is_new = version > first and index > 0
                moments.append(
                    _ConsumerVersion(row, rows[index - 1][1].epoch if is_new else row.epoch)
                )
        return moments

    def _check_claim(self, call: RecordedCall, known_since: int) -> Violation | None:
        detail, answer = call.detail, call.answer
        moments = self._moments(call, known_since)
        mine = [at.row for at in moments if at.first_epoch <= detail["epoch"] <= at.row.epoch]
        if not mine:
            return _FENCED, str(call)
        if answer.jobs or answer.lost:
            sets = self.sets.get((detail["consumer"], detail["batch"]), [])
            if not any(
                answer.jobs + len(answer.lost) == len(jobs) and set(answer.lost) <= set(jobs)
                for jobs in sets
            ):
                return _ONE_SET, f"{call}: {sets}"
            if not any(_has_open(row, detail["batch"]) for row in mine):
                # If it was open then, it was so for another driver alone.
                is_committed = any(_has_open(at.row, detail["batch"]) for at in moments)
                return _FENCED if is_committed else "no answer before its commit", str(call)
        if detail.get("acked"):
            done = (detail["acked"], answer.acked, answer.acked_lost)
            return self._check_closed(call, BatchState(*done), is_ack=True)
        return None

    def _check_read(self, call: RecordedCall) -> Violation | None:
        detail, page = call.detail, call.answer
        sets = self.sets.get((detail["consumer"], detail["batch"]), [()])
        held = [job.id for job in page.jobs]
        for jobs in sets:
            wanted = jobs[detail["start"] : detail["start"] + detail["limit"]]
            kept = [job_id for job_id in wanted if job_id not in page.lost]
            if held == kept and len(held) + len(page.lost) == len(wanted):
                return None
        return _ONE_SET, f"{call}: {sets}"

    def _check_settled(self, call: RecordedCall) -> Violation | None:
        for job_id in call.detail["completed"]:
            version, worker = self.completed.get(job_id, (call.ended_version + 1, ""))
            is_late = version > call.ended_version
            if job_id not in call.answer.lost and (
                is_late or not worker.endswith(f"@{call.detail['consumer']}")
            ):
                return "settled means completed", f"{call}: {job_id} by {worker}"
        return None

    def _check_closed(
        self, call: RecordedCall, answer: BatchState, *, is_ack: bool
    ) -> Violation | None:
        """Check what a call has answered of the batch that it closed."""
        detail = call.detail
        name = (detail["consumer"], answer.batch)
        closing = self.closings.get(name)
        if closing is None or closing.version > call.ended_version:
            return "closed means closed", str(call)
        if not answer.jobs and not answer.lost:
            return None  # It was closed before.
        if not closing.first_epoch <= detail["epoch"] <= closing.last_epoch:
            return _FENCED, str(call)
        kept = [job_id for job_id in self.sets[name][-1] if job_id not in answer.lost]
        if len(kept) != answer.jobs:
            return _ONE_SET, f"{call}: {self.sets[name]}"
        if is_ack:
            for job_id in kept:
                version, worker = self.completed.get(job_id, (0, ""))
                if version != closing.version or not worker.endswith(f"@{name[0]}"):
                    return "acknowledged means completed", f"{call}: {job_id} by {worker}"
        return None

    def _check_published(self, history: CallLog, call: RecordedCall) -> Violation | None:
        """An acknowledged position is there by then, and all of its jobs are pushed or none."""
        born = [self.born.get(token) for token in call.detail["tokens"]]
        if len(set(born)) > 1:
            return "all or none", str(call)
        if not call.succeeded:
            return None
        if any(version is None or version > call.ended_version for version in born):
            return "acknowledged means durable", str(call)
        return _check_first(history, call) if call.answer else None


def _is_settling(before: State, state: State, old: ConsumerRecord, row: ConsumerRecord) -> bool:
    """Whether jobs have left an open batch that its driver held before, and does not hold now."""
    gone = [job_id for job_id in old.jobs if job_id not in row.jobs]
    kept = tuple(job_id for job_id in old.jobs if job_id in row.jobs)
    if not (old.is_open and row.jobs and gone) or (row.batch, row.jobs) != (old.batch, kept):
        return False
    for job_id in gone:
        held, now = before.jobs.by_id.get(job_id), state.jobs.by_id.get(job_id)
        if (
            held is None
            or held.status != "running"
            or not (held.worker or "").endswith(f"@{row.id}")
        ):
            return False
        if now is not None and now.status == "running" and now.lease == held.lease:
            return False
    return True


def _check_reserved(before: State, state: State) -> Violation | None:
    """A reserved job that is neither handed out nor reserved any more has lost nothing by it."""
    for old in before.consumers:
        row, ahead = state.consumers.get(old.id), old.ahead
        for job_id in ahead.jobs if ahead is not None and row is not None else ():
            held, now = before.jobs.by_id.get(job_id), state.jobs.by_id.get(job_id)
            if ahead is None or row is None or held is None or now is None or now.seq != held.seq:
                continue
            if held.lease != lease_of(ahead.secret, job_id, held.attempt):
                continue
            if row.batch < ahead.batch and now.lost_leases > held.lost_leases:
                return "a reservation costs a job nothing", f"{old.id}: {held} became {now}"
            is_held = now.status == "running" and now.lease == held.lease
            if is_held and row.ahead != ahead and job_id not in row.jobs:
                return "a reservation is given up as a whole", f"{old.id}: {now}"
    return None


def _has_open(row: ConsumerRecord, batch: int) -> bool:
    return row.batch == batch and row.is_open


def _check_first(history: CallLog, call: RecordedCall) -> Violation | None:
    """Only one call is answered that it published a position first."""
    position = (call.detail["writer"], call.detail["batch"], call.detail["part"])
    for other in history.calls[: call.number]:
        if other.verb == "publish" and other.answer:
            theirs = (other.detail["writer"], other.detail["batch"], other.detail["part"])
            if theirs == position:
                return "a position is published once", f"{other}, and {call}"
    return None

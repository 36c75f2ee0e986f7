"""The queue as its rules define it: plain dictionaries, one loop for each rule, no index.

What the rules alone do not determine, a lease and the jitter of a delay, is taken from
the job that the model shows (``seen``), after a check that it is one that the rulings allow.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bucketq.errors import (
    InvalidRequestError,
    JobGoneError,
    KeyConflictError,
    LeaseLostError,
    QueueFullError,
    UnavailableError,
)
from bucketq.model.base import NewJob
from bucketq.model.job_batches import CancelBatch, CloseBatch
from bucketq.model.operations import (
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Configure,
    Expire,
    Fail,
    GrantToken,
    Heartbeat,
    Persist,
    Pulse,
    Push,
    Release,
    ReleaseMany,
    Request,
    Withdraw,
)
from bucketq.model.records import MAX_SNOOZES, JobRecord
from tests.unit.model.reference_brokers import BrokerReference
from tests.unit.model.reference_expiry import check_expiry, expires_at, has_expired
from tests.unit.model.reference_follow_ups import FollowUpReference
from tests.unit.model.reference_links import LinkReference
from tests.unit.model.reference_operators import OperatorReference
from tests.unit.model.reference_payloads import content
from tests.unit.model.reference_unique import key_content, period_key

Row = dict[str, Any]
Seen = Callable[[str], JobRecord]

_NEVER = object()
_FREE: Row = dict.fromkeys(
    ("lease", "worker", "claimed_at", "heartbeat_at", "lease_s", "progress")
) | {"silent_s": 0.0}


def row_of(job: JobRecord) -> Row:
    """A job as a plain row."""
    row = {name: getattr(job, name) for name in JobRecord.__struct_fields__}
    errors = tuple(msgspec.structs.astuple(failure) for failure in job.errors)
    return row | {"payload": bytes(job.payload), "result": bytes(job.result), "errors": errors}


class Reference(FollowUpReference, LinkReference, BrokerReference, OperatorReference):
    """A queue that is slow and obvious."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.leases_given: set[str] = set()
        self.secrets: dict[str, str] = {}
        """The secret of the claim under which each lease was given."""
        self.pushed = 0

    def apply(self, request: Request, now: datetime, seen: Seen) -> object:
        """Answer a request, or raise the error that refuses it."""
        if request.session:
            answer = self._recall(request)
            if answer is not _NEVER:
                return answer
        before, over = self._content(), self.over()
        operation = request.operation
        answer = getattr(self, f"_{type(operation).__name__.lower()}")(operation, now, seen)
        self.follow(over, now, seen)
        if self._content() != before:
            self.note_action(operation)
            if request.session:
                self._remember(request, answer, now)
        return answer

    def claimable(
        self, now: datetime, kinds: tuple[str, ...] = (), most: int = 10_000
    ) -> list[Row]:
        """The jobs that a claim may take, in the order in which it takes them."""
        if self.paused:
            return []
        due = [
            row
            for row in self.with_status("queued")
            if (row["run_at"] is None or row["run_at"] <= now)
            and not has_expired(row, now)
            and not row["after"]
            and (not kinds or row["kind"] in kinds)
            and row["kind"] not in self.paused_kinds
        ]
        return self.take_turns(due, kinds, most, now)

    def counts(self) -> dict[tuple[str, str], int]:
        """How many jobs there are by kind and status."""
        slots = [(row["kind"], row["status"]) for row in self.jobs.values()]
        return {slot: slots.count(slot) for slot in slots}

    def _content(self) -> tuple[object, ...]:
        rows = {job: dict(row) for job, row in self.jobs.items()}
        keys = {key: dict(row) for key, row in self.keys.items()}
        paused = (self.paused, list(self.paused_kinds))
        return (
            (rows, keys, dict(self.tokens)),
            self.bulk_content(),
            (self.limit_content(), self.worker_content()),
            dict(self.batches),
            (self.settings, self.broker, paused, list(self.sessions)),
        )

    # Requests that come again.

    def _recall(self, request: Request) -> object:
        session = self.sessions.get(request.session)
        if session is not None:
            if request.number < session["floor"]:
                raise InvalidRequestError
            if request.number in session["done"]:
                return self._answer_again(request, session["done"][request.number])
        if request.since is not None and request.since < self.horizon:
            raise UnavailableError("")
        return _NEVER

    def _answer_again(self, request: Request, answer: Any) -> object:
        if isinstance(request.operation, Configure):
            return self.settings
        if isinstance(request.operation, CloseBatch | CancelBatch):
            return self.existing_batch(request.operation.batch)
        if isinstance(request.operation, GrantToken):
            return self.grant_again(request.operation, answer)
        if isinstance(request.operation, Claim):
            claimed = [(self.jobs.get(row["id"]), row["attempt"]) for row in answer]
            return tuple(
                dict(row)
                for row, attempt in claimed
                if row is not None and row["status"] == "running" and row["attempt"] == attempt
            )
        return answer

    def _remember(self, request: Request, answer: object, now: datetime) -> None:
        session = self.sessions.setdefault(request.session, {"floor": 0, "done": {}})
        session.update(at=now, version=self.version + 1)
        session["done"][request.number] = answer
        session["floor"] = max(session["floor"], request.acknowledged_below)

    # How jobs come in.

    def _push(self, operation: Push, now: datetime, _seen: Seen) -> tuple[str, ...]:
        ids = [job.id for job in operation.jobs]
        keys = [job.key for job in operation.jobs if job.key is not None]
        if len(ids) > self.settings.max_batch_jobs:
            raise InvalidRequestError
        if len(set(ids)) < len(ids) or len(set(keys)) < len(keys):
            raise InvalidRequestError
        if any(job.delay_s is not None and job.run_at is not None for job in operation.jobs):
            raise InvalidRequestError
        for job in operation.jobs:
            check_expiry(job)
        self.check_refs(operation.jobs)
        answer = [self._known(job, now) for job in operation.jobs]
        unknown = [job for job, known in zip(operation.jobs, answer, strict=True) if not known]
        named = [job for job in unknown if job.unique is not None]
        self.check_unique(named)
        taken = {job.id: there for job in named if (there := self.taken(job, now)) is not None}
        answer = [
            known or taken.get(job.id) for job, known in zip(operation.jobs, answer, strict=True)
        ]
        fresh = [job for job in unknown if job.id not in taken]
        wanted = {job.key: job for job in unknown if job.key is not None}
        wanted |= {period_key(job): job for job in fresh if job.unique_s is not None}
        known_ids = {job.id: known for job, known in zip(operation.jobs, answer, strict=True)}
        after = self.find_links(operation.jobs, fresh, known_ids)
        unfinished = [row for row in self.jobs.values() if row["status"] != "done"]
        if fresh and len(unfinished) + len(fresh) > self.settings.max_jobs:
            raise QueueFullError
        for key in self.keys_in_the_way(set(wanted), now):
            del self.keys[key]
        for place, job in enumerate(operation.jobs if fresh else (), self.pushed + 1):
            if not answer[place - self.pushed - 1]:
                self._add(job, now, place)
                self.jobs[job.id]["after"] = after.get(job.id, ())
                self.jobs[job.id]["on_failed"] = job.on_failed if after.get(job.id) else None
        self.pushed += len(operation.jobs) if fresh else 0
        self.add_links(fresh)
        self.replace([job for job in named if job.id in taken], taken, now)
        self.put_keys(wanted, taken, now)
        return tuple(known or job.id for job, known in zip(operation.jobs, answer, strict=True))

    def keys_in_the_way(
        self, wanted: set[str], now: datetime, *, must_fit: bool = True
    ) -> list[str]:
        """Keys that the pusher finds too old, or more than a day ahead, if there is no room."""
        excess = len(self.keys | dict.fromkeys(wanted)) - self.settings.max_keys
        if excess <= 0 or wanted <= set(self.keys):
            return []
        ages = {key: now - row["at"] for key, row in self.keys.items() if key not in wanted}
        retention = timedelta(seconds=self.settings.key_retention_s)
        expired = [key for key in ages if ages[key] > retention]
        old = sorted(expired, key=ages.__getitem__, reverse=True)  # Of one age, the first one.
        spare = old + [key for key in ages if ages[key] < -timedelta(days=1)]
        if must_fit and len(spare) < excess:
            raise QueueFullError
        return spare[:excess]

    def _known(self, job: NewJob, now: datetime) -> str | None:
        key = self.keys.get(job.key) if job.key is not None else None
        retention = timedelta(seconds=self.settings.key_retention_s)
        if key is not None and now - retention <= key["at"] <= now + timedelta(days=1):
            if key["content"] != key_content(job):
                raise KeyConflictError
            return str(key["job"])
        row = self.jobs.get(job.id)
        if row is None:
            return None
        same = ("kind", "key", "group")
        if any(row[name] != getattr(job, name) for name in same):
            raise KeyConflictError
        there = content(row["payload"], row["payload_encoding"])
        if there != content(job.payload, job.payload_encoding):
            raise KeyConflictError
        return job.id

    def _add(self, job: NewJob, now: datetime, number: int) -> None:
        run_at = now + timedelta(seconds=job.delay_s) if job.delay_s else job.run_at
        row = msgspec.structs.asdict(job) | _FREE
        self.has_groups = self.has_groups or bool(job.group)
        for name in ("delay_s", "unique_scope", "unique_s", "replace", "expires_in_s", "ends"):
            del row[name]
        self.jobs[job.id] = row | {
            "payload": bytes(job.payload),
            "status": "queued",
            "seq": number,
            "pushed_at": now,
            "run_at": run_at,
            "expires_at": expires_at(job, now),
            "attempt": 0,
            "failures": 0,
            "snoozes": 0,
            "lost_leases": 0,
            "cancel_requested": False,
            "errors": (),
            "finished_at": None,
            "outcome": None,
            "result": b"",
            "result_encoding": None,
            "done_batch": None,
        }

    # What workers do.

    def _claim(self, operation: Claim, now: datetime, seen: Seen) -> tuple[Row, ...]:
        if operation.limit > self.settings.max_batch_jobs:
            raise InvalidRequestError
        chosen = self.claimable(now, operation.kinds, operation.limit)
        self.note_turns(chosen, operation.kinds, now)
        self.hand_out(chosen, operation, now, seen)
        return tuple(dict(row) for row in chosen)

    def hand_out(self, chosen: list[Row], claim: Any, now: datetime, seen: Seen) -> None:
        """Start jobs under the leases that the model shows."""
        for row in chosen:
            lease = seen(row["id"]).lease
            assert lease is not None
            assert lease not in self.leases_given, "a lease was handed out twice"
            self.leases_given.add(lease)
            self.secrets[lease] = getattr(claim, "secret", "")
            row.update(status="running", attempt=row["attempt"] + 1, run_at=None, lease=lease)
            row.update(worker=claim.worker, claimed_at=now, heartbeat_at=now, silent_s=0.0)
            row["lease_s"] = claim.lease_s

    def _heartbeat(self, operation: Heartbeat, now: datetime, _seen: Seen) -> tuple[Pulse, ...]:
        if len(operation.leases) > self.settings.max_batch_jobs:
            raise InvalidRequestError
        pulses = []
        for lease in operation.leases:
            row = self.jobs.get(lease.job)
            held = row is not None and row["status"] == "running" and row["lease"] == lease.lease
            if row is not None and held:
                row.update(heartbeat_at=now, silent_s=0.0)
                row["progress"] = operation.progress.get(lease.job, row["progress"])
                pulses.append(Pulse(lease.job, held=True, cancel_requested=row["cancel_requested"]))
            else:
                pulses.append(Pulse(lease.job, held=False))
        return tuple(pulses)

    def _held(self, job: str, lease: str) -> Row:
        if job not in self.jobs:
            raise JobGoneError
        row = self.jobs[job]
        if row["status"] != "running" or row["lease"] != lease:
            raise LeaseLostError
        return row

    def _complete(self, operation: Complete, now: datetime, _seen: Seen) -> None:
        row = self.jobs.get(operation.job)
        if row and row["outcome"] == "completed" and row["lease"] == operation.lease:
            return
        row = self._held(operation.job, operation.lease)
        self.check_refs([operation])
        self.check_follow_ups(operation.follow_ups)
        self._finish(operation, row, now)
        self.push_follow_ups(operation.follow_ups, now)

    def _finish(self, done: Complete | Completion, row: Row, now: datetime) -> None:
        row.update(status="done", outcome="completed", finished_at=now, cancel_requested=False)
        row.update(result=bytes(done.result), silent_s=0.0, lease_s=None, progress=None)
        row["result_encoding"] = done.result_encoding

    def _completemany(
        self, operation: CompleteMany, now: datetime, _seen: Seen
    ) -> tuple[bool, ...]:
        if len(operation.jobs) > self.settings.max_batch_jobs:
            raise InvalidRequestError
        for job in operation.jobs:
            self.check_follow_ups(job.follow_ups)
        self.check_refs(operation.jobs)
        answer, pushing = [], []
        for job in operation.jobs:
            row = self.jobs.get(job.job, {"lease": None})
            if row["lease"] == job.lease and row["status"] == "running":
                self._finish(job, row, now)
                pushing.append(job)
            answer.append(row["lease"] == job.lease and row["outcome"] == "completed")
        for job in pushing:
            self.push_follow_ups(job.follow_ups, now)
        return tuple(answer)

    def _fail(self, operation: Fail, now: datetime, seen: Seen) -> str:
        row = self._held(operation.job, operation.lease)
        if operation.snooze and row["snoozes"] < MAX_SNOOZES:
            row["snoozes"] += 1
            release = Release(job=row["id"], lease=row["lease"], delay_s=operation.delay_s or 0)
            self._release(release, now, seen)
            return str(row["status"])
        row["failures"] += 1
        self._note(row, "failed", operation.error, now)
        backoff = row["backoff"] or self.settings.backoff
        full_s = min(backoff.base_s * backoff.factor ** (row["failures"] - 1), backoff.max_s)
        self._end(row, now, give_up=not operation.retry)
        if row["status"] == "queued" and full_s:
            run_at = seen(operation.job).run_at
            assert run_at is not None
            assert full_s / 2 <= (run_at - now).total_seconds() <= full_s
            row["run_at"] = run_at
        return str(row["status"])

    def _release(self, operation: Release, now: datetime, _seen: Seen) -> None:
        row = self._held(operation.job, operation.lease)
        self._end(row, now, costs=False)
        if row["status"] == "queued" and operation.delay_s:
            row["run_at"] = now + timedelta(seconds=operation.delay_s)

    def _withdraw(self, operation: Withdraw, now: datetime, _seen: Seen) -> int:
        session = self.sessions.get(operation.session, {"floor": 0, "done": {}})
        answer = session["done"].get(operation.number)
        if operation.number < session["floor"] or not isinstance(answer, tuple):
            return 0
        claimed = [row for row in answer if isinstance(row, dict)]
        held = [
            row
            for job in claimed
            if (row := self.jobs.get(job["id"])) is not None
            and row["status"] == "running"
            and row["lease"] == job["lease"]
            and operation.secret == self.secrets[job["lease"]]
        ]
        for row in held:
            self._end(row, now, costs=False)
        return len(held)

    def _releasemany(self, operation: ReleaseMany, now: datetime, seen: Seen) -> tuple[bool, ...]:
        if len(operation.leases) > self.settings.max_batch_jobs:
            raise InvalidRequestError
        answer = []
        for lease in operation.leases:
            one = Release(job=lease.job, lease=lease.lease, delay_s=operation.delay_s)
            try:
                self._release(one, now, seen)
            except LeaseLostError:
                answer.append(False)
            else:
                answer.append(True)
        return tuple(answer)

    def _expire(self, operation: Expire, now: datetime, _seen: Seen) -> bool:
        row = self.jobs.get(operation.job)
        if row is None or row["status"] != "running" or row["attempt"] != operation.attempt:
            return False
        if self.is_reserved(row):
            self._end(row, now, costs=False)
            return True
        row["lost_leases"] += 1
        self._note(row, "lost", "no heartbeat", now)
        self._end(row, now)
        return True

    def _note(self, row: Row, cause: str, error: str, now: datetime) -> None:
        line = (now, row["attempt"], cause, error, row["worker"])
        errors = [*row["errors"], line]
        while len(errors) > self.settings.max_errors:
            errors.pop(0)
        row["errors"] = tuple(errors)

    def _end(self, row: Row, now: datetime, *, give_up: bool = False, costs: bool = True) -> None:
        row.update(_FREE)
        limit = row["max_attempts"] or self.settings.max_attempts
        if row["cancel_requested"]:
            row.update(status="done", outcome="cancelled", finished_at=now, cancel_requested=False)
        elif give_up or (costs and row["failures"] + row["lost_leases"] >= limit):
            row.update(status="dead", finished_at=now)
        else:
            row.update(status="queued", run_at=None)

    # What brokers do.

    def _persist(self, operation: Persist, now: datetime, _seen: Seen) -> int:
        count = 0
        for silence in operation.silences:
            row = self.jobs.get(silence.job)
            if row and (row["status"], row["attempt"]) == ("running", silence.attempt):
                heartbeat_at = now - timedelta(seconds=silence.silent_s)
                row.update(heartbeat_at=heartbeat_at, silent_s=silence.silent_s)
                row["progress"] = silence.progress or row["progress"]
                count += 1
        return count

    # What operators do.

"""A queue in memory: rows of its object, entries of its segments, and indexes over both.

A state is mutable and owned by one task. Only ``transitions.apply`` changes its content; the
register moves its version. When a commit is lost to another writer the state is thrown away,
never mended.

Everything that an index knows can be derived from the rows, so two states with the same rows
answer every operation alike, however they were reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from itertools import repeat
from operator import attrgetter
from typing import Any, Literal

from msgspec import Raw

from bucketq.model.audit_records import AuditRecord
from bucketq.model.history import ChangeRecorder, History
from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.bucket_table import BucketTable
from bucketq.model.indexes.cold_jobs import ColdJobs
from bucketq.model.indexes.cold_rows import ColdRows
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.expiring_jobs import FEATURE as EXPIRY
from bucketq.model.indexes.expiring_jobs import ExpiringJobs
from bucketq.model.indexes.finished_jobs import FinishedJobs, finished_at
from bucketq.model.indexes.followed_jobs import FollowedJobs
from bucketq.model.indexes.job_counts import JobCounts
from bucketq.model.indexes.known_keys import KnownKeys
from bucketq.model.indexes.result_table import ResultTable
from bucketq.model.indexes.running_jobs import RunningJobs
from bucketq.model.indexes.table import Table
from bucketq.model.indexes.unique_index import UniqueIndex
from bucketq.model.indexes.waiting_jobs import WaitingJobs
from bucketq.model.indexes.worker_table import WorkerTable
from bucketq.model.job_batches import BatchRecord
from bucketq.model.limits import GROUPS, BucketRecord, LimitRecord
from bucketq.model.numbered_batches import ConsumerRecord, WriterRecord
from bucketq.model.partitions import Partition
from bucketq.model.records import AgreedTime, BrokerRecord, JobRecord, KeyRecord, Status
from bucketq.model.requests.sessions import Sessions
from bucketq.model.reservations import ReservationRecord
from bucketq.model.schedules import ScheduleRecord
from bucketq.model.segments import SegmentIndex, SegmentRecord
from bucketq.model.settings import Settings
from bucketq.model.tokens import TokenRecord

RING_LENGTH = 64
"""How many commits back a writer can find its own after a lost answer. They are written with every
version, so it is not more."""

_Bounded = Literal["tokens", "consumers", "writers", "reservations", "schedules", "batches"]
ForgettableTable = _Bounded | Literal["limits", "buckets", "workers", "audit", "results"]

Change = tuple[str, str]
"""The table that a row was changed in, and the row's id; the head of the object has no id."""

_id = attrgetter("id")


class State:
    """A queue at one version, and what was applied to it since."""

    archive_trouble = ""
    """Why this process cannot archive finished jobs, for errors that result from it."""
    recorder: ChangeRecorder | None = None
    """Notes what is changed; None: history is off."""
    partition: Partition | None = None
    """Which part of a queue with partitions it is."""
    has_moved = False
    """Whether a job that waits was replaced, so that it may have several entries in its lane."""

    def __init__(  # noqa: PLR0913 - one for each table
        self,
        *,
        incarnation: str,
        created_at: datetime,
        jobs: Iterable[JobRecord] = (),
        keys: Iterable[KeyRecord] = (),
        tokens: Iterable[TokenRecord] = (),
        consumers: Iterable[ConsumerRecord] = (),
        writers: Iterable[WriterRecord] = (),
        reservations: Iterable[ReservationRecord] = (),
        schedules: Iterable[ScheduleRecord] = (),
        limits: Iterable[LimitRecord] = (),
        buckets: Iterable[BucketRecord] = (),
        batches: Iterable[BatchRecord] = (),
        segments: Iterable[SegmentRecord] = (),
    ) -> None:
        """Make a state of rows in the order of their numbers. Raises ``ValueError`` on bad ones."""
        self.incarnation, self.created_at = incarnation, created_at
        self.version, self.next_seq = 0, 1
        self.requires: dict[str, None] = {}
        """What readers of the object must know; nothing: it is written in format 1."""
        self.former: dict[str, None] = {}
        """Incarnations that ended when this one began, and of which there may be segments left."""
        self.commits: deque[str] = deque(maxlen=RING_LENGTH)
        """The commits that made this version and those before it, oldest first."""
        self.broker: BrokerRecord | None = None
        self.settings = Settings()
        self.paused = False
        self.paused_kinds: dict[str, None] = {}
        self.time: AgreedTime | None = None
        """What the clocks of the writers show; None: it was never recorded."""
        self.sessions = Sessions()
        self.keys, self.tokens = Table(keys), Table(tokens)
        self.consumers, self.writers = Table(consumers), Table(writers)
        self.reservations, self.schedules = Table(reservations), Table(schedules)
        self.limits, self.buckets = Table(limits), BucketTable(buckets)
        self.followed = FollowedJobs(batches)
        self.workers, self.audit, self.results = WorkerTable(), Table[AuditRecord](), ResultTable()
        self.jobs = Table(jobs)
        """The jobs of the object itself, and by id those that ``cold`` has lent."""
        self.cold = ColdJobs(ColdRows(segments), self.jobs)
        """The jobs in segments."""
        self.extra: dict[Change, dict[str, Raw]] = {}
        """Fields that this version of bucketq does not know, by table and row."""
        self.history = History()

        self.size_bytes = 0
        """How large the object was at this version."""
        self.added_bytes = 0
        """About how much was pushed since, less the finished jobs that were removed."""
        self.changes: list[Change] = []
        """What was changed since the last commit was prepared."""

        self.running = RunningJobs()
        self.dead: dict[str, JobRecord] = {}
        self.dead_ages = AgeIndex(self.dead, finished_at)
        self.delayed = AgeIndex(self.jobs.by_id, _due_at, ())
        self.done = FinishedJobs()
        """The outbox: jobs that wait to be archived."""
        self.counts = JobCounts()
        self.known_keys = KnownKeys(self.keys, self.cold.rows)
        """The keys of the object, and those in segments."""
        self.unique, self.expiring = UniqueIndex(self.jobs), ExpiringJobs(self.jobs.by_id)
        self.waiting = WaitingJobs(self.jobs.by_id, self.cold, self.delayed, self.expiring)
        self.token_ends = AgeIndex(self.tokens.by_id, attrgetter("expires_at"))
        self.consumer_ages = AgeIndex(self.consumers.by_id, attrgetter("closed_since"))
        self.writer_ages = AgeIndex(self.writers.by_id, attrgetter("at"))
        self._enter_all(self.jobs)

    @property
    def has_changes(self) -> bool:
        """Whether there is something to commit."""
        return bool(self.changes)

    @property
    def epoch(self) -> int:
        """The epoch of the broker that serves the queue, or of the last one; 0: there was none."""
        return self.broker.epoch if self.broker else 0

    @property
    def is_served(self) -> bool:
        """Whether a broker is recorded that has not retired. It alone judges who is silent."""
        return self.broker is not None and self.broker.address != ""

    @property
    def batches(self) -> Table[BatchRecord]:
        """Jobs that belong together: how many there are, and how they have ended."""
        return self.followed.batches

    @property
    def jobs_count(self) -> int:
        """How many jobs there are, in the object and in segments."""
        return len(self.jobs.by_id) - self.cold.lent + self.cold.rows.jobs_count

    def count(self, kind: str, status: Status) -> int:
        """How many jobs of a kind have a status."""
        return self.counts.get((kind, status), 0)

    def add_jobs(self, jobs: Collection[JobRecord], *, are_plain: bool = False) -> None:
        """Add jobs that wait and were not there, behind all others.

        ``are_plain``: all can be claimed now, none expires, and none has a group.
        """
        self.jobs.extend(jobs)
        if self.recorder is not None:
            self.recorder.add(jobs)
        self._note_changed(jobs)
        if are_plain:
            self._enter_plain(jobs)
        else:
            self._enter_all(jobs)

    def add_segment(self, record: SegmentRecord, index: SegmentIndex) -> None:
        """Name a segment of jobs that wait and were not there, behind all others."""
        segment = self.cold.add(record, index)
        if index.has_groups:
            self.requires[GROUPS] = None
        for kind, count in index.count_kinds(segment.gone).items():
            self.counts.add(kind, "queued", count)

    def start_jobs(self, jobs: Collection[JobRecord]) -> None:
        """Replace the records of jobs that were taken out of their lanes, and are running now.

        They leave no entries behind, so there is nothing to sweep.
        """
        self._replace_all(jobs, "queued", "running")
        self.running.add_all(jobs)

    def put_back(self, jobs: Iterable[JobRecord]) -> None:
        """Put jobs back that were taken out of their lanes, unchanged."""
        self.waiting.put_back(jobs)

    def finish_jobs(self, jobs: Collection[JobRecord]) -> None:
        """Replace the records of jobs that were running, and are done now."""
        self._replace_all(jobs, "running", "done")
        if self.followed.is_used:
            self.followed.note_all(jobs)
        self.running.remove_all(jobs)
        self.done.add_all(jobs)

    def put_job(self, job: JobRecord) -> None:
        """Add a job, or replace the record of one, and keep the indexes right."""
        old = self.jobs.by_id.get(job.id)
        if old is not None:
            self.replace_job(old, job)
            return
        self.jobs.put(job)
        self.changes.append(("jobs", job.id))
        if self.recorder is not None:
            self.recorder.add((job,))
        self.counts.add(job.kind, job.status, 1)
        self._enter(job)

    def replace_job(self, old: JobRecord, job: JobRecord) -> None:
        """Put a new record in the place of the old one, and keep the indexes right."""
        self.changes.append(("jobs", job.id))
        if old.status == "running" == job.status and old.kind == job.kind:
            if self.recorder is not None:
                self.recorder.replace({job.id: old}, (job,))
            self.jobs.replace((job,))  # To the indexes, nothing has changed.
            return
        if self.followed.is_used:
            self.followed.note(old, job)
        self._leave(old)
        self._store((job,))
        self.counts.add(job.kind, job.status, 1)
        self._enter(job)

    def remove_archived(self, jobs: Collection[JobRecord]) -> None:
        """Take out jobs that are in the archive."""
        if self.recorder is not None:
            self.recorder.remove(jobs)
        self._note_changed(jobs)
        for job in jobs if self.extra else ():
            self.extra.pop(("jobs", job.id), None)
        self.counts.add_all(jobs, "done", -1)
        self.added_bytes -= self.done.remove_all(jobs)
        self.jobs.remove_all(jobs)

    def put_key(self, key: str, job: str, digest: str, at: datetime) -> None:
        """Remember an idempotency key that was not known."""
        seq = self.known_keys.next_seq
        self.known_keys.add(KeyRecord(id=key, seq=seq, job=job, digest=digest, at=at))
        self.changes.append(("keys", key))

    def forget_key(self, key: str) -> None:
        """Forget an idempotency key that was found before, wherever it is."""
        self.known_keys.forget(key)
        self.changes.append(("keys", key))

    def put_limit(self, limit: LimitRecord) -> None:
        """Add a limit, or replace the record of one."""
        self.limits.put(limit)
        self.changes.append(("limits", limit.id))

    def put_bucket(self, bucket: BucketRecord, period: timedelta) -> None:
        """Add a token bucket, or replace the record of one; its limit has this period."""
        self.buckets.add(bucket, period)
        self.changes.append(("buckets", bucket.id))

    def put_row(self, row: TokenRecord | ConsumerRecord | WriterRecord) -> None:
        """Add a token, a consumer or a writer, or replace the record of one."""
        tables: dict[type, tuple[str, Table[Any], AgeIndex[Any]]] = {
            TokenRecord: ("tokens", self.tokens, self.token_ends),
            ConsumerRecord: ("consumers", self.consumers, self.consumer_ages),
            WriterRecord: ("writers", self.writers, self.writer_ages),
        }
        name, table, ages = tables[type(row)]
        table.put(row)
        ages.add(row)
        self.changes.append((name, row.id))

    def forget(self, name: ForgettableTable, row_id: str) -> None:
        """Remove a row of a table other than that of jobs or sessions."""
        table: Table[Any] = getattr(self, name)
        table.remove(row_id)
        self.changes.append((name, row_id))

    def touch_head(self) -> None:
        """Note that a field of the object itself was changed."""
        self.changes.append(("head", ""))

    def attach_cold(self, some: Collection[Segment] | None = None) -> None:
        """Count the jobs in segments, all or some, for claims. Raises ``ColdRowsNeededError``."""
        if self.cold.unread:
            for (kind, status), count in self.cold.attach(some).items():
                self.counts.add(kind, status, count)

    def promote(self, now: datetime) -> None:
        """Move delayed jobs that are due to their lanes. Raises ``ColdRowsNeededError``."""
        while (job := self.delayed.first()) is not None and job.run_at and job.run_at <= now:
            self.delayed.pop()
            self.waiting.add(job)
        for job in self.expiring.take_unexpired(now) if self.expiring.skipped else ():
            self.waiting.add(job)
            self.has_moved = True
        self.cold.release_due(now)
        if self.requires:  # Without groups and limits there is nothing to show.
            self.waiting.turns.show_freed(self.running.freed, now)

    def next_due(self) -> datetime | None:
        """When a delayed job, or one that a rate holds up, is next; a cold one may be later."""
        job, cold = self.delayed.first(), self.cold.next_due()
        times = (cold, None if job is None else job.run_at, self.waiting.turns.next_time())
        return min(filter(None, times), default=None)

    def kinds_waiting(self) -> Iterable[str]:
        """The kinds that may have a job to be claimed, some perhaps twice."""
        if self.requires and GROUPS in self.requires:  # There may be thousands of lanes.
            return [kind for kind, status in self.counts if status == "queued"]
        return [*self.waiting.lanes, *self.cold.lanes]

    def find_job(self, job_id: str) -> JobRecord | None:
        """Find a job by its id, wherever it is, to look at it. Raises ``ColdRowsNeededError``."""
        return self.jobs.by_id.get(job_id) or self.cold.read(job_id)

    def borrow_job(self, job_id: str) -> JobRecord | None:
        """Find a job by its id, wherever it is, to change it. Raises ``ColdRowsNeededError``."""
        return self.jobs.by_id.get(job_id) or self._borrowed(job_id)

    def _borrowed(self, job_id: str) -> JobRecord | None:
        job = self.cold.borrow(job_id)
        if job is not None and job.status == "dead":
            self._enter(job)
        return job

    @property
    def dead_count(self) -> int:
        """How many dead jobs there are, in the object and in segments."""
        return len(self.dead) - self.cold.lent_dead + self.cold.rows.count("dead")

    def _replace_all(self, jobs: Collection[JobRecord], before: Status, after: Status) -> None:
        """Replace the records of jobs that have changed their status."""
        self._store(jobs)
        self._note_changed(jobs)
        self.counts.add_all(jobs, before, -1)
        self.counts.add_all(jobs, after)

    def _store(self, jobs: Collection[JobRecord]) -> None:
        """Replace rows; one that was in a segment is written to the object from now on."""
        if self.recorder is not None:
            self.recorder.replace(self.jobs.by_id, jobs)
        if self.cold.lent and (lent := self.cold.give_up(jobs)):
            moved = [job for job in jobs if job.id in lent]
            self.jobs.replace(job for job in jobs if job.id not in lent)
            self.jobs.insert(moved)
            for job in moved:
                if job.unique is not None:
                    self.unique.add(job)
                if unknown := lent[job.id].unknown:
                    self.extra["jobs", job.id] = unknown
        else:
            self.jobs.replace(jobs)

    def _note_changed(self, jobs: Iterable[JobRecord]) -> None:
        self.changes.extend(zip(repeat("jobs"), map(_id, jobs), strict=False))

    def _enter_all(self, jobs: Iterable[JobRecord]) -> None:
        """Count and index jobs that are in the order of their numbers."""
        plain, done = list[JobRecord](), list[JobRecord]()
        for job in jobs:
            is_plain = job.run_at is None and job.expires_at is None and not job.group
            if is_plain and job.status == "queued" and not job.after:
                plain.append(job)
            elif job.status == "done":
                done.append(job)
            else:
                self.counts.add(job.kind, job.status, 1)
                self._enter(job)
        self._enter_plain(plain)
        self.counts.add_all(done, "done")
        self.done.add_all(done)

    def _enter_plain(self, jobs: Iterable[JobRecord]) -> None:
        for kind, count in self.waiting.extend(jobs):
            self.counts.add(kind, "queued", count)

    def _enter(self, job: JobRecord) -> None:
        if job.status == "queued":
            if job.after:
                self.followed.hold(job, self.requires)
            else:
                self._wait(job)
            if job.group:
                self.requires[GROUPS] = None
            if job.expires_at is not None:
                self.requires[EXPIRY] = None
                self.expiring.add(job)
        elif job.status == "running":
            self.running.add_all((job,))
        elif job.status == "done":
            self.done.add_all((job,))
        else:
            self.dead[job.id] = job
            self.dead_ages.add(job)

    def _wait(self, job: JobRecord) -> None:
        if job.run_at is not None:
            self.delayed.add(job)
        else:
            self.waiting.add(job)

    def _leave(self, job: JobRecord) -> None:
        self.counts.add(job.kind, job.status, -1)
        if job.status == "queued":
            if job.after:
                self.followed.let_go(job)
            else:
                self.waiting.sweep(job, self.count(job.kind, "queued"))
        elif job.status == "running":
            self.running.remove_all((job,))
        elif job.status == "done":
            self.done.remove_all((job,))
        else:
            del self.dead[job.id]


def _due_at(job: JobRecord) -> datetime | None:
    return job.run_at if job.status == "queued" else None

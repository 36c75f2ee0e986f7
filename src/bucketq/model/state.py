"""The whole queue in memory, with the indexes that make it fast.

A state is mutable and owned by one task. Only ``transitions.apply`` changes its content; the
register moves its version. When a commit is lost to another writer the state is thrown away,
never mended.

Everything that an index knows can be derived from the rows, so two states with the same rows
answer every operation alike, however they were reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime
from heapq import heappop, heappush

from msgspec import Raw

from bucketq.model.age_index import AgeIndex
from bucketq.model.finished_jobs import FinishedJobs
from bucketq.model.lane import Lane
from bucketq.model.numbered_batches import ConsumerRecord, WriterRecord
from bucketq.model.records import AgreedTime, BrokerRecord, JobRecord, KeyRecord, Status
from bucketq.model.sessions import Sessions
from bucketq.model.settings import Settings
from bucketq.model.table import Table
from bucketq.model.tokens import TokenRecord

RING_LENGTH = 64
"""How many commits back a writer can look for its own."""

_SWEEP_ABOVE = 1024

Change = tuple[str, str]
"""The table that a row was changed in, and the row's id; the head of the object has no id."""


class State:
    """A queue at one version, and what was applied to it since."""

    def __init__(self, *, incarnation: str, created_at: datetime) -> None:
        """Make the state of a queue that was never written."""
        self.incarnation = incarnation
        self.created_at = created_at
        self.version = 0
        self.commits: deque[str] = deque(maxlen=RING_LENGTH)
        """The commits that made this version and those before it, oldest first."""
        self.broker: BrokerRecord | None = None
        self.settings = Settings()
        self.paused = False
        self.paused_kinds: dict[str, None] = {}
        self.next_seq = 1
        self.time: AgreedTime | None = None
        """What the clocks of the writers show; None: it was never noted."""
        self.sessions = Sessions()
        self.keys: Table[KeyRecord] = Table()
        self.tokens: Table[TokenRecord] = Table()
        self.consumers: Table[ConsumerRecord] = Table()
        self.writers: Table[WriterRecord] = Table()
        self.jobs: Table[JobRecord] = Table()
        self.extra: dict[Change, dict[str, Raw]] = {}
        """Fields that this version of bucketq does not know, by table and row."""

        self.size_bytes = 0
        """How large the object was at this version."""
        self.added_bytes = 0
        """About how much was pushed since, less the finished jobs that left."""
        self.changes: list[Change] = []
        """What was changed since the last commit was prepared."""

        self.lanes: dict[str, Lane] = {}
        self.delayed: list[tuple[datetime, int, str]] = []
        self.running: dict[str, None] = {}
        self.dead: dict[str, None] = {}
        self.done = FinishedJobs()
        """The outbox: jobs that wait to be archived."""
        self.archive_trouble = ""
        """Why this process cannot archive them, for errors that result from it."""
        self.counts: dict[tuple[str, Status], int] = {}
        self.token_expires_at: datetime | None = None
        """When the next token expires; None: none ever does."""
        self.key_ages = AgeIndex(self.keys, _always)
        self.latest_key_at = created_at
        """No key has a later time than this."""
        self.consumer_ages = AgeIndex(self.consumers, _is_closed)
        self.writer_ages = AgeIndex(self.writers, _always)
        self._left_delayed = 0
        self._deaths: list[tuple[datetime, int, str]] = []

    def restore(
        self,
        jobs: Iterable[JobRecord],
        keys: Iterable[KeyRecord],
        tokens: Iterable[TokenRecord] = (),
        consumers: Iterable[ConsumerRecord] = (),
        writers: Iterable[WriterRecord] = (),
    ) -> None:
        """Take rows that were read from an object, in order. Raises ``ValueError`` on bad ones."""
        self.jobs = Table(jobs)
        self.keys = Table(keys)
        self.key_ages = AgeIndex(self.keys, _always)
        self.latest_key_at = max((key.at for key in self.keys), default=self.created_at)
        self.tokens = Table(tokens)
        self._note_token_expiry()
        self.consumers = Table(consumers)
        self.consumer_ages = AgeIndex(self.consumers, _is_closed)
        self.writers = Table(writers)
        self.writer_ages = AgeIndex(self.writers, _always)
        waiting: dict[str, list[JobRecord]] = {}
        for job in self.jobs:
            if job.status == "queued" and job.run_at is None:
                waiting.setdefault(job.kind, []).append(job)
            else:
                self._count(job.kind, job.status, 1)
                self._enter(job)
        self._line_up_all(waiting)

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

    def count(self, kind: str, status: Status) -> int:
        """How many jobs of a kind have a status."""
        return self.counts.get((kind, status), 0)

    def add_jobs(self, jobs: Collection[JobRecord]) -> None:
        """Add jobs that wait and were not there, behind all others."""
        self.jobs.extend(jobs)
        self.changes += [("jobs", job.id) for job in jobs]
        waiting: dict[str, list[JobRecord]] = {}
        for job in jobs:
            if job.run_at is None:
                waiting.setdefault(job.kind, []).append(job)
            else:
                self._count(job.kind, "queued", 1)
                self._wait(job)
        self._line_up_all(waiting)

    def start_jobs(self, jobs: Collection[JobRecord]) -> None:
        """Replace the records of jobs that were taken out of their lanes, and are running now.

        They leave no entries behind, so there is nothing to sweep.
        """
        self._replace_all(jobs, "queued", "running")
        for job in jobs:
            self.running[job.id] = None

    def take_out(self, jobs: Collection[JobRecord]) -> None:
        """Take jobs that are due out of their lanes, wherever they stand there.

        They must be started at once: a job that waits has exactly one entry.
        """
        kinds: dict[str, set[int]] = {}
        for job in jobs:
            kinds.setdefault(job.kind, set()).add(job.seq)
        for kind, numbers in kinds.items():
            self.lanes[kind].remove(numbers)

    def finish_jobs(self, jobs: Collection[JobRecord]) -> None:
        """Replace the records of jobs that were running, and are done now."""
        self._replace_all(jobs, "running", "done")
        for job in jobs:
            del self.running[job.id]
            self.done.add(job)

    def put_job(self, job: JobRecord) -> None:
        """Add a job, or replace the record of one, and keep the indexes right."""
        old = self.jobs.by_id.get(job.id)
        if old is not None:
            self.replace_job(old, job)
            return
        self.jobs.put(job)
        self.changes.append(("jobs", job.id))
        self._count(job.kind, job.status, 1)
        self._enter(job)

    def replace_job(self, old: JobRecord, job: JobRecord) -> None:
        """Put a new record in the place of the old one, and keep the indexes right."""
        self.changes.append(("jobs", job.id))
        if old.status == "running" == job.status and old.kind == job.kind:
            self.jobs.replace((job,))  # To the indexes, nothing has changed.
            return
        self._leave(old)
        self.jobs.replace((job,))
        self._count(job.kind, job.status, 1)
        self._enter(job)

    def remove_job(self, job_id: str) -> None:
        """Take out a job that is in the archive."""
        before_bytes = self.done.size_bytes
        self._leave(self.jobs.by_id[job_id])
        self.added_bytes += self.done.size_bytes - before_bytes
        self.jobs.remove(job_id)
        self.extra.pop(("jobs", job_id), None)
        self.changes.append(("jobs", job_id))

    def put_key(self, key: str, job: str, digest: str, at: datetime) -> None:
        """Remember an idempotency key."""
        seq = self.keys.next_seq
        record = KeyRecord(id=key, seq=seq, job=job, digest=digest, at=at)
        self.keys.put(record)
        self.key_ages.note(record)
        self.latest_key_at = max(self.latest_key_at, at)
        self.changes.append(("keys", key))

    def remove_key(self, key: str) -> None:
        """Forget an idempotency key."""
        self.keys.remove(key)
        self.changes.append(("keys", key))

    def find_token(self, token_id: str, now: datetime) -> TokenRecord | None:
        """The token with this id if it is good now, or None."""
        token = self.tokens.get(token_id)
        return token if token is not None and token.is_live(now) else None

    def put_token(self, token: TokenRecord) -> None:
        """Add a token."""
        self.tokens.put(token)
        self._note_token_expiry()
        self.changes.append(("tokens", token.id))

    def remove_token(self, token_id: str) -> None:
        """Forget a token."""
        self.tokens.remove(token_id)
        self._note_token_expiry()
        self.changes.append(("tokens", token_id))

    def put_consumer(self, consumer: ConsumerRecord) -> None:
        """Add a consumer, or replace the record of one."""
        self.consumers.put(consumer)
        self.consumer_ages.note(consumer)
        self.changes.append(("consumers", consumer.id))

    def remove_consumer(self, name: str) -> None:
        """Forget a consumer."""
        self.consumers.remove(name)
        self.changes.append(("consumers", name))

    def put_writer(self, writer: WriterRecord) -> None:
        """Add a writer, or replace the record of one."""
        self.writers.put(writer)
        self.writer_ages.note(writer)
        self.changes.append(("writers", writer.id))

    def remove_writer(self, name: str) -> None:
        """Forget a writer."""
        self.writers.remove(name)
        self.changes.append(("writers", name))

    def touch_head(self) -> None:
        """Note that a field of the object itself was changed."""
        self.changes.append(("head", ""))

    def promote(self, now: datetime) -> None:
        """Let delayed jobs whose time has come wait with the others."""
        while self.delayed and self.delayed[0][0] <= now:
            job = self._delayed_job(heappop(self.delayed))
            if job is not None:
                self._line_up(job)

    def next_due(self) -> datetime | None:
        """When the next delayed job becomes claimable, or None."""
        while self.delayed:
            job = self._delayed_job(self.delayed[0])
            if job is not None:
                return job.run_at
            heappop(self.delayed)
        return None

    def head_of(self, kind: str, now: datetime) -> JobRecord | None:
        """The next job of a kind that is due, or None."""
        lane = self.lanes.get(kind)
        if lane is None:
            return None
        while (job := lane.head(self.jobs.by_id)) is not None:
            if job.run_at is None or job.run_at <= now:
                return job
            lane.pop(job)  # The clock was set back since it was promoted.
            self._wait(job)
        del self.lanes[kind]
        return None

    def oldest_queued(self) -> JobRecord | None:
        """The waiting job that was pushed first, or None."""
        return next((job for job in self.jobs if job.status == "queued"), None)

    def oldest_dead(self) -> JobRecord | None:
        """The dead job that died first, or None."""
        while self._deaths:
            job = self.jobs.get(self._deaths[0][2])
            if job is not None and job.status == "dead" and _death(job) == self._deaths[0]:
                return job
            heappop(self._deaths)
        return None

    def dead_jobs(self) -> list[JobRecord]:
        """The dead jobs in the order of their deaths; of one moment, in that of their pushes."""
        return sorted((self.jobs.by_id[job_id] for job_id in self.dead), key=_death)

    def _replace_all(self, jobs: Collection[JobRecord], before: Status, after: Status) -> None:
        """Replace the records of jobs, and count those of a kind that stand together at once."""
        self.jobs.replace(jobs)
        changes = self.changes
        kind, count = "", 0
        for job in jobs:
            changes.append(("jobs", job.id))
            if count and job.kind != kind:
                self._recount(kind, before, after, count)
                count = 0
            kind = job.kind
            count += 1
        if count:
            self._recount(kind, before, after, count)

    def _recount(self, kind: str, before: Status, after: Status, moved: int) -> None:
        counts, slot = self.counts, (kind, before)
        if counts[slot] == moved:
            del counts[slot]
        else:
            counts[slot] -= moved
        slot = (kind, after)
        counts[slot] = counts.get(slot, 0) + moved

    def _note_token_expiry(self) -> None:
        ends = (token.expires_at for token in self.tokens)
        self.token_expires_at = min((end for end in ends if end is not None), default=None)

    def _count(self, kind: str, status: Status, more: int) -> None:
        slot = (kind, status)
        count = self.counts.get(slot, 0) + more
        if count:
            self.counts[slot] = count
        else:
            del self.counts[slot]

    def _enter(self, job: JobRecord) -> None:
        if job.status == "queued":
            self._wait(job)
        elif job.status == "running":
            self.running[job.id] = None
        elif job.status == "done":
            self.done.add(job)
        else:
            self._bury(job)

    def _bury(self, job: JobRecord) -> None:
        self.dead[job.id] = None
        heappush(self._deaths, _death(job))
        if len(self._deaths) > 2 * len(self.dead) + _SWEEP_ABOVE:
            self._deaths = [_death(job) for job in self.dead_jobs()]

    def _wait(self, job: JobRecord) -> None:
        if job.run_at is not None:
            heappush(self.delayed, (job.run_at, job.seq, job.id))
        else:
            self._line_up(job)

    def _line_up(self, job: JobRecord) -> None:
        self._lane(job.kind).add(job)

    def _line_up_all(self, waiting: dict[str, list[JobRecord]]) -> None:
        """Count jobs and let them wait, by kind and in the order of their numbers."""
        for kind, jobs in waiting.items():
            self._count(kind, "queued", len(jobs))
            self._lane(kind).extend(jobs)

    def _lane(self, kind: str) -> Lane:
        lane = self.lanes.get(kind)
        if lane is None:
            lane = self.lanes[kind] = Lane()
        return lane

    def _delayed_job(self, entry: tuple[datetime, int, str]) -> JobRecord | None:
        """The job of an entry, if it still waits; its id may belong to a later job by now."""
        run_at, seq, job_id = entry
        job = self.jobs.get(job_id)
        if job is None or job.status != "queued" or (job.run_at, job.seq) != (run_at, seq):
            return None
        return job

    def _leave(self, job: JobRecord) -> None:
        self._count(job.kind, job.status, -1)
        if job.status == "queued":
            self._sweep(job)
        elif job.status == "running":
            del self.running[job.id]
        elif job.status == "done":
            self.done.remove(job.id)
        else:
            del self.dead[job.id]

    def _sweep(self, left: JobRecord) -> None:
        """Drop entries of jobs that have left, if they outnumber those that wait."""
        lane = self.lanes.get(left.kind)
        if lane is not None:
            lane.sweep(self.jobs.by_id, self.count(left.kind, "queued"))
        if left.run_at is None:
            return
        self._left_delayed += 1
        if self._left_delayed > _SWEEP_ABOVE and 2 * self._left_delayed > len(self.delayed):
            self._left_delayed = 0
            jobs = list(map(self._delayed_job, self.delayed))
            self.delayed = []
            for job in jobs:
                if job is not None and job is not left:
                    self._wait(job)


def _death(job: JobRecord) -> tuple[datetime, int, str]:
    return (job.finished_at or job.pushed_at, job.seq, job.id)


def _is_closed(consumer: ConsumerRecord) -> bool:
    """Whether it can be forgotten without forgetting a batch."""
    return not consumer.is_open


def _always(_row: KeyRecord | WriterRecord) -> bool:
    return True

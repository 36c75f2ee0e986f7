"""Every operation and every answer, with every field set and unset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from msgspec import Raw, structs

from bucketq.model import history, numbered_batches, results, schedules
from bucketq.model import operations as ops
from bucketq.model.base import NewJob
from bucketq.model.job_ids import KnownJobId
from bucketq.model.queue_stats import Stats
from bucketq.model.records import Backoff, BrokerRecord, Failure, JobRecord, Progress
from bucketq.model.settings import Settings
from bucketq.model.tokens import TokenInfo
from bucketq.rpc.messages import FlushArchive

NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
SECRET = "b1dc61f79818c9ff5663130821bdcc6c"

PLAIN_JOB = NewJob(id="j1", kind="email", payload=Raw(b'{"to":"ada"}'))
FULL_JOB = NewJob(
    id="j2",
    kind="images/thumbnail",
    payload=Raw(b'"iVBORw=="'),
    payload_encoding="base64",
    priority=-(2**31),
    delay_s=1.5,
    run_at=NOON,
    max_attempts=7,
    backoff=Backoff(base_s=0.5, factor=3.0, max_s=60.0),
    key="schlüssel-1",
    tags={"team": "growth", "empty": ""},
    replay_of="j0",
)
JOBS = (
    PLAIN_JOB,
    FULL_JOB,
    NewJob(id="", kind="", payload=Raw(b"")),
    NewJob(id="j3", kind="k", payload=Raw(b"1"), priority=2**31),
    NewJob(id="j4", kind="k", payload=Raw(b"1"), delay_s=0.0),
    NewJob(id="j5", kind="k", payload=Raw(b"1"), key=""),
    NewJob(id="j6", kind="k", payload=Raw(b"1"), replay_of=""),
    NewJob(id="j7", kind="k", payload=Raw(b"1"), max_attempts=0),
    NewJob(id="j8", kind="k", payload=Raw(b"1"), backoff=Backoff(0.0, 0.0, 0.0)),
    NewJob(id="j9", kind="k", payload=Raw(b"1"), run_at=datetime(1, 1, 1, tzinfo=UTC)),
    NewJob(
        id="j10",
        kind="k",
        payload=Raw(b"1"),
        run_at=datetime(2026, 7, 1, 3, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ),
)

OPERATIONS: tuple[ops.AnyOperation | FlushArchive, ...] = (
    ops.Push(jobs=()),
    ops.Push(jobs=(PLAIN_JOB,)),
    ops.Push(jobs=JOBS),
    ops.Claim(worker="w", secret=SECRET),
    ops.Claim(worker="w", secret=SECRET, kinds=("a", "b"), limit=10_000, wait_s=20.5),
    ops.Claim(worker="", secret="", limit=0),
    ops.Heartbeat(leases=()),
    ops.Heartbeat(leases=(ops.LeaseRef("j1", "l1"), ops.LeaseRef("", ""))),
    ops.Complete(job="j1", lease="l1"),
    ops.Complete(job="j1", lease="l1", result=Raw(b'"cG5n"'), result_encoding="base64"),
    ops.Complete(job="", lease=""),
    ops.CompleteMany(jobs=()),
    ops.CompleteMany(
        jobs=(
            ops.Completion(job="j1", lease="l1"),
            ops.Completion(job="j2", lease="l2", result=Raw(b"[1]"), result_encoding="base64"),
        )
    ),
    ops.Fail(job="j1", lease="l1", error="boom: größer"),
    ops.Fail(job="j1", lease="l1", error="", retry=False),
    ops.Fail(job="j1", lease="l1", error="later", delay_s=0.0),
    ops.Fail(job="j1", lease="l1", error="later", delay_s=2.5),
    ops.Fail(job="j1", lease="l1", error="later", max_attempts=7),
    ops.Release(job="j1", lease="l1"),
    ops.Release(job="j1", lease="l1", delay_s=2.5),
    ops.Withdraw(session="s1", number=7, secret=SECRET),
    ops.Withdraw(session="", number=0, secret=""),
    ops.ReleaseMany(leases=()),
    ops.ReleaseMany(leases=(ops.LeaseRef("j1", "l1"), ops.LeaseRef("", "")), delay_s=2.5),
    ops.Cancel(job="j1"),
    ops.Cancel(job=""),
    ops.Redrive(),
    ops.Redrive(jobs=("j1", "j2"), kinds=("a",), limit=3),
    ops.Purge(),
    ops.Purge(jobs=("j1",), kinds=("a", "b"), older_than_s=86400.0),
    ops.Purge(limit=1000),
    ops.Pause(),
    ops.Pause(kind="a"),
    ops.Pause(kind=""),
    ops.Resume(),
    ops.Resume(kind="a"),
    ops.Configure(changes={}),
    ops.Configure(changes={"lease_s": 60, "backoff": {"base_s": 2.5}, "unknown": [None, "x"]}),
    ops.Get(job="j1"),
    ops.Get(job=""),
    ops.List(),
    ops.List(statuses=("dead", "queued"), kinds=("a",), tags={"t": "v"}, after=2**62, limit=1),
    ops.List(limit=0),
    ops.ReadStats(),
    ops.ReadSnapshot(),
    history.ReadChanges(after=0),
    history.ReadChanges(after=2**62, limit=1),
    history.ReadCopy(version=0),
    history.ReadCopy(version=2**40, at="2026-01-01T00:00:00+00:00", part=3),
    history.ForgetHistory(before=7),
    ops.Heartbeat(
        leases=(ops.LeaseRef("j1", "l1"),),
        progress={"j1": Progress(40, 100, "frames"), "j2": Progress(0.5)},
    ),
    results.Wait(job="j1", seen='{"done":1}'),
    results.Wait(job=""),
    results.Wait(job="größe", wait_s=3600.0),
    results.FindArchived(job="j1"),
    FlushArchive(),
    ops.GrantToken(id="", name="", digest="", rights=()),
    ops.GrantToken(
        id="0a1b2c3d", name="größe", digest="5e" * 32, rights=("push", "admin"), ttl_s=86400.5
    ),
    ops.RevokeToken(id=""),
    ops.RevokeToken(id="0a1b2c3d"),
    ops.ReadTokens(),
    ops.Claim(worker="w", secret="s", lease_s=0.0),
    ops.Claim(worker="w", secret="s", lease_s=3600.5),
    numbered_batches.OpenConsumer(consumer=""),
    numbered_batches.OpenConsumer(consumer="größe"),
    numbered_batches.ClaimBatch(consumer="", epoch=0, batch=0, secret="", worker="", limit=0),
    numbered_batches.ClaimBatch(
        consumer="spark",
        epoch=3,
        batch=2**63 - 1,
        secret="5e" * 16,
        worker="driver",
        kinds=("index", "mail"),
        limit=500,
        lease_s=600.5,
    ),
    numbered_batches.ReadBatch(consumer="", batch=0, limit=0),
    numbered_batches.ReadBatch(consumer="spark", batch=7, start=200, limit=100),
    numbered_batches.AckBatch(consumer="", epoch=0, batch=0),
    numbered_batches.AckBatch(consumer="spark", epoch=3, batch=7),
    numbered_batches.ReleaseBatch(consumer="", epoch=0, batch=0),
    numbered_batches.ReleaseBatch(consumer="spark", epoch=3, batch=7),
    numbered_batches.ReadConsumers(),
    numbered_batches.RemoveConsumer(consumer=""),
    numbered_batches.RemoveConsumer(consumer="spark"),
    numbered_batches.Publish(writer="", batch=0, jobs=()),
    numbered_batches.Publish(writer="sink", batch=41, part=3, jobs=(PLAIN_JOB, PLAIN_JOB)),
    schedules.SetSchedule(schedule="", job=PLAIN_JOB),
    schedules.SetSchedule(schedule="tick", job=FULL_JOB, every_s=300.5, missed="skip"),
    schedules.SetSchedule(
        schedule="nightly",
        job=PLAIN_JOB,
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        missed="all",
        jitter_s=0.25,
        alone=True,
    ),
    schedules.RemoveSchedule(schedule="nightly"),
    schedules.PauseSchedule(schedule="nightly"),
    schedules.ResumeSchedule(schedule="nightly"),
    schedules.RunSchedule(schedule="nightly", job="j1"),
    schedules.ReadSchedules(),
)

WAITING = JobRecord(
    id="j1", kind="email", status="queued", seq=1, payload=Raw(b'{"to":"ada"}'), pushed_at=NOON
)
DONE = JobRecord(
    id="j2",
    kind="email",
    status="done",
    seq=2**53,
    payload=Raw(b'"iVBORw=="'),
    payload_encoding="base64",
    pushed_at=NOON,
    priority=-5,
    run_at=NOON,
    attempt=3,
    failures=1,
    lost_leases=1,
    max_attempts=4,
    backoff=Backoff(0.5, 3.0, 60.0),
    key="k",
    tags={"team": "growth"},
    lease="l",
    worker="w",
    claimed_at=NOON,
    heartbeat_at=NOON,
    silent_s=1.25,
    cancel_requested=True,
    errors=(
        Failure(at=NOON, attempt=1, cause="failed", error="größer", worker="w"),
        Failure(at=NOON, attempt=2, cause="lost", error="no heartbeat"),
    ),
    finished_at=NOON,
    outcome="completed",
    result=Raw(b"[1,2]"),
    result_encoding="base64",
    replay_of="j0",
)
BROKER = BrokerRecord(address="10.0.0.1:7700", id="b1", epoch=3, since=NOON, host="h")
STATS = Stats(
    version=42,
    counts={"email": {"queued": 2, "done": 1}},
    oldest_queued_s=1.5,
    bytes=12345,
    paused=True,
    paused_kinds=("a", "b"),
    broker=BROKER,
    keys=3,
    sessions=4,
    segments=3,
    segment_bytes=12000,
)
EMPTY_STATS = Stats(
    version=1,
    counts={},
    oldest_queued_s=None,
    bytes=0,
    paused=False,
    paused_kinds=(),
    broker=None,
    keys=0,
    sessions=0,
)
CHANGES = history.ChangePage(
    incarnation="01KG9MFMM0C83BST5GD08927D6",
    since=2,
    version=9,
    changes=(
        history.ChangeRecord(
            id="a743e030c3ce5c97",
            seq=8,
            at=NOON,
            epoch=1,
            requests=Raw(b'[["push","0a1b2c3d",["j1"],"ada@host"]]'),
            jobs=Raw(b'[{"id":"j1","seq":1,"status":"queued","unset":["worker"]}]'),
        ),
        history.ChangeRecord(id="495527d3992b6aac", seq=9, at=NOON, gone=Raw(b'[["j1",1]]')),
    ),
)
COPY_PART = history.CopyPart(
    incarnation="01KG9MFMM0C83BST5GD08927D6",
    version=7,
    at=NOON,
    parts=2,
    head=Raw(b'{"settings":{"lease_s":60.0},"paused":true,"paused_kinds":["a"]}'),
    jobs=(WAITING, DONE),
)
SNAPSHOT = ops.Snapshot(
    version=42,
    incarnation="i",
    at=NOON,
    settings=Settings(lease_s=60.0),
    paused=False,
    paused_kinds=("a",),
    jobs=(WAITING, DONE),
)

TOKEN = TokenInfo(
    id="0a1b2c3d", name="ci", rights=("push", "claim"), created_at=NOON, expires_at=NOON
)
LASTING_TOKEN = TokenInfo(id="00000000", name="größe", rights=("admin",), created_at=NOON)

HELD = structs.replace(WAITING, status="running", lease="l1", worker="w", lease_s=600.5)
CONSUMER = numbered_batches.ConsumerInfo(name="größe", epoch=3, batch=7, pending=2, at=NOON)
IDLE_CONSUMER = numbered_batches.ConsumerInfo(name="idle", epoch=1, at=NOON)
SCHEDULE = schedules.ScheduleRecord(
    id="nightly",
    seq=1,
    kind="report",
    payload=Raw(b'{"days":1}'),
    created_at=NOON,
    decided_at=NOON,
    cron="0 3 * * *",
    timezone="Europe/Berlin",
)
TICK = schedules.ScheduleRecord(
    id="tick",
    seq=2,
    kind="ping",
    payload=Raw(b'"AAEC"'),
    payload_encoding="base64",
    created_at=NOON,
    decided_at=NOON,
    every_s=300.0,
    missed="all",
    jitter_s=1.5,
    alone=True,
    paused=True,
    priority=5,
    max_attempts=3,
    backoff=Backoff(2.5),
    tags={"team": "growth"},
    last_job="j1",
    last_seq=7,
)

DEAD_END = results.JobEnd(
    id="größe",
    seq=2**62,
    status="dead",
    outcome="dead",
    error=Failure(NOON, 3, "failed", "boom", "w"),
    result=Raw(b'"AA=="'),
    result_encoding="base64",
)
ANSWERS: tuple[tuple[str, Any], ...] = (
    ("push", ()),
    ("push", ("j1", "j2")),
    ("push", ("j1", KnownJobId("j2"))),
    ("wait", None),
    ("wait", Progress(40, 100, "frames")),
    ("wait", results.JobEnd(id="j1", seq=1, status="done", outcome="completed")),
    ("find_archived", DEAD_END),
    ("claim", ()),
    ("claim", (WAITING, DONE)),
    ("heartbeat", ()),
    (
        "heartbeat",
        (
            ops.Pulse("j1", held=True),
            ops.Pulse("j2", held=False),
            ops.Pulse("j3", held=True, cancel_requested=True),
        ),
    ),
    ("complete", None),
    ("complete_many", ()),
    ("complete_many", (True, False, True)),
    ("fail", "queued"),
    ("fail", "dead"),
    ("release", None),
    ("withdraw", 0),
    ("withdraw", 3),
    ("release_many", ()),
    ("release_many", (True, False, True)),
    ("cancel", "cancelled"),
    ("cancel", "requested"),
    ("cancel", "finished"),
    ("redrive", 0),
    ("redrive", 17),
    ("purge", 2**40),
    ("pause", None),
    ("resume", None),
    ("configure", Settings()),
    ("configure", Settings(lease_s=60.0, backoff=Backoff(2.5), max_jobs=7)),
    ("get", WAITING),
    ("get", DONE),
    ("list", ops.Page((), None)),
    ("list", ops.Page((WAITING, DONE), 2)),
    ("list", ops.Page((), 0)),
    ("stats", STATS),
    ("stats", EMPTY_STATS),
    ("snapshot", SNAPSHOT),
    ("flush_archive", 0),
    ("flush_archive", 3),
    ("grant_token", TOKEN),
    ("grant_token", LASTING_TOKEN),
    ("revoke_token", True),
    ("revoke_token", False),
    ("tokens", ()),
    ("tokens", (TOKEN, LASTING_TOKEN)),
    ("open_consumer", numbered_batches.ConsumerState("", 0, 0, 0)),
    ("open_consumer", numbered_batches.ConsumerState("spark", 3, 2**63 - 1, 500)),
    ("claim_batch", numbered_batches.BatchState(0, 0)),
    ("claim_batch", numbered_batches.BatchState(7, 498, ("j1", "j2"))),
    ("read_batch", numbered_batches.BatchPage(())),
    ("read_batch", numbered_batches.BatchPage((HELD, WAITING), ("j1", "j2"), 200)),
    ("ack_batch", numbered_batches.BatchState(7, 0)),
    ("ack_batch", numbered_batches.BatchState(7, 498, ("j1", "j2"))),
    ("release_batch", numbered_batches.BatchState(0, 0, ("j1",))),
    ("consumers", ()),
    ("consumers", (CONSUMER, IDLE_CONSUMER)),
    ("remove_consumer", True),
    ("remove_consumer", False),
    ("set_schedule", "created"),
    ("set_schedule", "unchanged"),
    ("remove_schedule", True),
    ("remove_schedule", False),
    ("pause_schedule", None),
    ("resume_schedule", None),
    ("run_schedule", ("j1",)),
    ("schedules", ()),
    ("schedules", (SCHEDULE, TICK)),
    ("publish", True),
    ("publish", False),
    ("read_changes", CHANGES),
    ("read_changes", structs.replace(CHANGES, changes=())),
    ("read_copy", COPY_PART),
    ("forget_history", 8),
)
"""What ``apply`` answers to each verb."""

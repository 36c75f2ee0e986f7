import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_LEADING: _ClassVar[Role]
    ROLE_STANDING_BY: _ClassVar[Role]
    ROLE_RETIRED: _ClassVar[Role]
    ROLE_CUT_OFF: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
ROLE_LEADING: Role
ROLE_STANDING_BY: Role
ROLE_RETIRED: Role
ROLE_CUT_OFF: Role

class NewJob(_message.Message):
    __slots__ = ("id", "kind", "payload", "payload_encoding", "priority", "options")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_ENCODING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    payload: bytes
    payload_encoding: str
    priority: int
    options: JobOptions
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_encoding: _Optional[str] = ..., priority: _Optional[int] = ..., options: _Optional[_Union[JobOptions, _Mapping]] = ...) -> None: ...

class JobOptions(_message.Message):
    __slots__ = ("delay_s", "run_at", "max_attempts", "backoff", "key", "tags", "replay_of", "unique", "unique_scope", "unique_s", "replace", "expires_in_s", "group", "batch_id", "after", "on_failed", "ends", "traceparent")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class EndsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_OF_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_S_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_S_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ON_FAILED_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    delay_s: float
    run_at: _timestamp_pb2.Timestamp
    max_attempts: int
    backoff: Backoff
    key: str
    tags: _containers.ScalarMap[str, str]
    replay_of: str
    unique: str
    unique_scope: str
    unique_s: float
    replace: str
    expires_in_s: float
    group: str
    batch_id: str
    after: _containers.RepeatedScalarFieldContainer[str]
    on_failed: str
    ends: _containers.ScalarMap[str, bool]
    traceparent: str
    def __init__(self, delay_s: _Optional[float] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., max_attempts: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., key: _Optional[str] = ..., tags: _Optional[_Mapping[str, str]] = ..., replay_of: _Optional[str] = ..., unique: _Optional[str] = ..., unique_scope: _Optional[str] = ..., unique_s: _Optional[float] = ..., replace: _Optional[str] = ..., expires_in_s: _Optional[float] = ..., group: _Optional[str] = ..., batch_id: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., on_failed: _Optional[str] = ..., ends: _Optional[_Mapping[str, bool]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("base_s", "factor", "max_s")
    BASE_S_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_S_FIELD_NUMBER: _ClassVar[int]
    base_s: float
    factor: float
    max_s: float
    def __init__(self, base_s: _Optional[float] = ..., factor: _Optional[float] = ..., max_s: _Optional[float] = ...) -> None: ...

class Push(_message.Message):
    __slots__ = ("jobs", "plain")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    plain: PlainJobs
    def __init__(self, jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ..., plain: _Optional[_Union[PlainJobs, _Mapping]] = ...) -> None: ...

class PlainJobs(_message.Message):
    __slots__ = ("ids", "kinds", "payloads")
    IDS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., payloads: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("worker", "secret", "kinds", "limit", "wait_s", "lease_s")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    worker: str
    secret: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    wait_s: float
    lease_s: float
    def __init__(self, worker: _Optional[str] = ..., secret: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., wait_s: _Optional[float] = ..., lease_s: _Optional[float] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("job", "lease")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    job: str
    lease: str
    def __init__(self, job: _Optional[str] = ..., lease: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("leases", "progress")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    progress: _containers.RepeatedCompositeFieldContainer[JobProgress]
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[JobProgress, _Mapping]]] = ...) -> None: ...

class JobProgress(_message.Message):
    __slots__ = ("job", "done", "total", "note")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    job: str
    done: float
    total: float
    note: str
    def __init__(self, job: _Optional[str] = ..., done: _Optional[float] = ..., total: _Optional[float] = ..., note: _Optional[str] = ...) -> None: ...

class Complete(_message.Message):
    __slots__ = ("job", "lease", "result", "result_encoding", "follow_ups")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_ENCODING_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_UPS_FIELD_NUMBER: _ClassVar[int]
    job: str
    lease: str
    result: bytes
    result_encoding: str
    follow_ups: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, job: _Optional[str] = ..., lease: _Optional[str] = ..., result: _Optional[bytes] = ..., result_encoding: _Optional[str] = ..., follow_ups: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class CompleteMany(_message.Message):
    __slots__ = ("jobs", "plain")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Complete]
    plain: PlainCompletions
    def __init__(self, jobs: _Optional[_Iterable[_Union[Complete, _Mapping]]] = ..., plain: _Optional[_Union[PlainCompletions, _Mapping]] = ...) -> None: ...

class PlainCompletions(_message.Message):
    __slots__ = ("jobs", "leases", "results")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    leases: _containers.RepeatedScalarFieldContainer[str]
    results: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., leases: _Optional[_Iterable[str]] = ..., results: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Fail(_message.Message):
    __slots__ = ("job", "lease", "error", "give_up", "delay_s", "max_attempts", "snooze")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    GIVE_UP_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SNOOZE_FIELD_NUMBER: _ClassVar[int]
    job: str
    lease: str
    error: str
    give_up: bool
    delay_s: float
    max_attempts: int
    snooze: bool
    def __init__(self, job: _Optional[str] = ..., lease: _Optional[str] = ..., error: _Optional[str] = ..., give_up: _Optional[bool] = ..., delay_s: _Optional[float] = ..., max_attempts: _Optional[int] = ..., snooze: _Optional[bool] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("job", "lease", "delay_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    job: str
    lease: str
    delay_s: float
    def __init__(self, job: _Optional[str] = ..., lease: _Optional[str] = ..., delay_s: _Optional[float] = ...) -> None: ...

class Withdraw(_message.Message):
    __slots__ = ("session", "number", "secret")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    session: str
    number: int
    secret: str
    def __init__(self, session: _Optional[str] = ..., number: _Optional[int] = ..., secret: _Optional[str] = ...) -> None: ...

class ReleaseMany(_message.Message):
    __slots__ = ("leases", "delay_s")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    delay_s: float
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., delay_s: _Optional[float] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class SetPriority(_message.Message):
    __slots__ = ("job", "priority")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    job: str
    priority: int
    def __init__(self, job: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class Redrive(_message.Message):
    __slots__ = ("jobs", "kinds", "limit")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ...) -> None: ...

class Purge(_message.Message):
    __slots__ = ("jobs", "kinds", "older_than_s", "limit")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_S_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    older_than_s: float
    limit: int
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., older_than_s: _Optional[float] = ..., limit: _Optional[int] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class Configure(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: bytes
    def __init__(self, changes: _Optional[bytes] = ...) -> None: ...

class Get(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class List(_message.Message):
    __slots__ = ("statuses", "kinds", "tags", "after", "limit", "groups", "batch_id")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    tags: _containers.ScalarMap[str, str]
    after: int
    limit: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    batch_id: str
    def __init__(self, statuses: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., tags: _Optional[_Mapping[str, str]] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ..., batch_id: _Optional[str] = ...) -> None: ...

class ReadStats(_message.Message):
    __slots__ = ("samples",)
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    samples: bool
    def __init__(self, samples: _Optional[bool] = ...) -> None: ...

class ReadSnapshot(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushArchive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadChanges(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadCopy(_message.Message):
    __slots__ = ("version", "at", "part")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    version: int
    at: str
    part: int
    def __init__(self, version: _Optional[int] = ..., at: _Optional[str] = ..., part: _Optional[int] = ...) -> None: ...

class ForgetHistory(_message.Message):
    __slots__ = ("before", "is_asked")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    IS_ASKED_FIELD_NUMBER: _ClassVar[int]
    before: int
    is_asked: bool
    def __init__(self, before: _Optional[int] = ..., is_asked: _Optional[bool] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("job", "wait_s", "seen")
    JOB_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    wait_s: float
    seen: str
    def __init__(self, job: _Optional[str] = ..., wait_s: _Optional[float] = ..., seen: _Optional[str] = ...) -> None: ...

class FindArchived(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class StageObject(_message.Message):
    __slots__ = ("content", "bytes", "digest", "nonce", "tries")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    content: str
    bytes: int
    digest: str
    nonce: str
    tries: int
    def __init__(self, content: _Optional[str] = ..., bytes: _Optional[int] = ..., digest: _Optional[str] = ..., nonce: _Optional[str] = ..., tries: _Optional[int] = ...) -> None: ...

class PutPart(_message.Message):
    __slots__ = ("object", "part", "data", "job", "content")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    object: str
    part: int
    data: bytes
    job: str
    content: str
    def __init__(self, object: _Optional[str] = ..., part: _Optional[int] = ..., data: _Optional[bytes] = ..., job: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class KeepObject(_message.Message):
    __slots__ = ("object", "job", "content")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    object: str
    job: str
    content: str
    def __init__(self, object: _Optional[str] = ..., job: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class ReadPart(_message.Message):
    __slots__ = ("object", "part", "job", "lease")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    object: str
    part: int
    job: str
    lease: str
    def __init__(self, object: _Optional[str] = ..., part: _Optional[int] = ..., job: _Optional[str] = ..., lease: _Optional[str] = ...) -> None: ...

class GrantToken(_message.Message):
    __slots__ = ("id", "name", "digest", "rights", "ttl_s")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    digest: str
    rights: _containers.RepeatedScalarFieldContainer[str]
    ttl_s: float
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., digest: _Optional[str] = ..., rights: _Optional[_Iterable[str]] = ..., ttl_s: _Optional[float] = ...) -> None: ...

class RevokeToken(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReadTokens(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpenConsumer(_message.Message):
    __slots__ = ("consumer",)
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    def __init__(self, consumer: _Optional[str] = ...) -> None: ...

class ClaimBatch(_message.Message):
    __slots__ = ("consumer", "epoch", "batch", "secret", "worker", "kinds", "limit", "lease_s", "max_failures", "max_bytes", "acked")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    epoch: int
    batch: int
    secret: str
    worker: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    lease_s: float
    max_failures: int
    max_bytes: int
    acked: int
    def __init__(self, consumer: _Optional[str] = ..., epoch: _Optional[int] = ..., batch: _Optional[int] = ..., secret: _Optional[str] = ..., worker: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., lease_s: _Optional[float] = ..., max_failures: _Optional[int] = ..., max_bytes: _Optional[int] = ..., acked: _Optional[int] = ...) -> None: ...

class PrepareBatch(_message.Message):
    __slots__ = ("consumer", "epoch", "batch", "secret", "worker", "kinds", "limit", "lease_s", "max_bytes")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    epoch: int
    batch: int
    secret: str
    worker: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    lease_s: float
    max_bytes: int
    def __init__(self, consumer: _Optional[str] = ..., epoch: _Optional[int] = ..., batch: _Optional[int] = ..., secret: _Optional[str] = ..., worker: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., lease_s: _Optional[float] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ReadBatch(_message.Message):
    __slots__ = ("consumer", "batch", "start", "limit")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    batch: int
    start: int
    limit: int
    def __init__(self, consumer: _Optional[str] = ..., batch: _Optional[int] = ..., start: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class AckBatch(_message.Message):
    __slots__ = ("consumer", "epoch", "batch")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    epoch: int
    batch: int
    def __init__(self, consumer: _Optional[str] = ..., epoch: _Optional[int] = ..., batch: _Optional[int] = ...) -> None: ...

class SettleBatch(_message.Message):
    __slots__ = ("consumer", "batch", "jobs")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    batch: int
    jobs: _containers.RepeatedCompositeFieldContainer[SettledJob]
    def __init__(self, consumer: _Optional[str] = ..., batch: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[SettledJob, _Mapping]]] = ...) -> None: ...

class SettledJob(_message.Message):
    __slots__ = ("job", "lease", "result", "result_encoding", "error", "give_up")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_ENCODING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    GIVE_UP_FIELD_NUMBER: _ClassVar[int]
    job: str
    lease: str
    result: bytes
    result_encoding: str
    error: str
    give_up: bool
    def __init__(self, job: _Optional[str] = ..., lease: _Optional[str] = ..., result: _Optional[bytes] = ..., result_encoding: _Optional[str] = ..., error: _Optional[str] = ..., give_up: _Optional[bool] = ...) -> None: ...

class ReleaseBatch(_message.Message):
    __slots__ = ("consumer", "epoch", "batch")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    epoch: int
    batch: int
    def __init__(self, consumer: _Optional[str] = ..., epoch: _Optional[int] = ..., batch: _Optional[int] = ...) -> None: ...

class ReadConsumers(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveConsumer(_message.Message):
    __slots__ = ("consumer",)
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    def __init__(self, consumer: _Optional[str] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("writer", "batch", "part", "jobs", "last")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    writer: str
    batch: int
    part: int
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    last: bool
    def __init__(self, writer: _Optional[str] = ..., batch: _Optional[int] = ..., part: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ..., last: _Optional[bool] = ...) -> None: ...

class SetSchedule(_message.Message):
    __slots__ = ("schedule", "job", "cron", "timezone", "every_s", "missed", "jitter_s", "alone")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    EVERY_S_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    JITTER_S_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    job: NewJob
    cron: str
    timezone: str
    every_s: float
    missed: str
    jitter_s: float
    alone: bool
    def __init__(self, schedule: _Optional[str] = ..., job: _Optional[_Union[NewJob, _Mapping]] = ..., cron: _Optional[str] = ..., timezone: _Optional[str] = ..., every_s: _Optional[float] = ..., missed: _Optional[str] = ..., jitter_s: _Optional[float] = ..., alone: _Optional[bool] = ...) -> None: ...

class RemoveSchedule(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    def __init__(self, schedule: _Optional[str] = ...) -> None: ...

class PauseSchedule(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    def __init__(self, schedule: _Optional[str] = ...) -> None: ...

class ResumeSchedule(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    def __init__(self, schedule: _Optional[str] = ...) -> None: ...

class RunSchedule(_message.Message):
    __slots__ = ("schedule", "job")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    job: str
    def __init__(self, schedule: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class ReadSchedules(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetLimit(_message.Message):
    __slots__ = ("target", "running", "rate", "period_s")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_S_FIELD_NUMBER: _ClassVar[int]
    target: str
    running: int
    rate: int
    period_s: float
    def __init__(self, target: _Optional[str] = ..., running: _Optional[int] = ..., rate: _Optional[int] = ..., period_s: _Optional[float] = ...) -> None: ...

class RemoveLimit(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...

class ReadLimits(_message.Message):
    __slots__ = ("kind", "group")
    KIND_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    kind: str
    group: str
    def __init__(self, kind: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class OpenBatch(_message.Message):
    __slots__ = ("batch", "on_done")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ON_DONE_FIELD_NUMBER: _ClassVar[int]
    batch: str
    on_done: NewJob
    def __init__(self, batch: _Optional[str] = ..., on_done: _Optional[_Union[NewJob, _Mapping]] = ...) -> None: ...

class CloseBatch(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: str
    def __init__(self, batch: _Optional[str] = ...) -> None: ...

class CancelBatch(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: str
    def __init__(self, batch: _Optional[str] = ...) -> None: ...

class CancelJobs(_message.Message):
    __slots__ = ("batch", "after", "limit")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    batch: str
    after: int
    limit: int
    def __init__(self, batch: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadBatches(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: str
    def __init__(self, batch: _Optional[str] = ...) -> None: ...

class Announce(_message.Message):
    __slots__ = ("id", "name", "host", "pid", "version", "concurrency", "up_s", "kinds", "running", "draining", "leaving")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    host: str
    pid: int
    version: str
    concurrency: int
    up_s: float
    kinds: _containers.RepeatedScalarFieldContainer[str]
    running: int
    draining: bool
    leaving: bool
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., version: _Optional[str] = ..., concurrency: _Optional[int] = ..., up_s: _Optional[float] = ..., kinds: _Optional[_Iterable[str]] = ..., running: _Optional[int] = ..., draining: _Optional[bool] = ..., leaving: _Optional[bool] = ...) -> None: ...

class DrainWorker(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class ReadWorkers(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadAudit(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pushed(_message.Message):
    __slots__ = ("ids", "known")
    IDS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., known: _Optional[_Iterable[int]] = ...) -> None: ...

class Claimed(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, jobs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Pulses(_message.Message):
    __slots__ = ("pulses",)
    PULSES_FIELD_NUMBER: _ClassVar[int]
    pulses: _containers.RepeatedCompositeFieldContainer[Pulse]
    def __init__(self, pulses: _Optional[_Iterable[_Union[Pulse, _Mapping]]] = ...) -> None: ...

class Pulse(_message.Message):
    __slots__ = ("job", "held", "cancel_requested")
    JOB_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    job: str
    held: bool
    cancel_requested: bool
    def __init__(self, job: _Optional[str] = ..., held: _Optional[bool] = ..., cancel_requested: _Optional[bool] = ...) -> None: ...

class Completions(_message.Message):
    __slots__ = ("finished",)
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    finished: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, finished: _Optional[_Iterable[bool]] = ...) -> None: ...

class Releases(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, released: _Optional[_Iterable[bool]] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: str
    def __init__(self, status: _Optional[str] = ...) -> None: ...

class Cancelled(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: str
    def __init__(self, result: _Optional[str] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: int
    def __init__(self, jobs: _Optional[int] = ...) -> None: ...

class Document(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("jobs", "next_after")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[bytes]
    next_after: int
    def __init__(self, jobs: _Optional[_Iterable[bytes]] = ..., next_after: _Optional[int] = ...) -> None: ...

class Revoked(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: bool
    def __init__(self, found: _Optional[bool] = ...) -> None: ...

class TokenList(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, tokens: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("consumer", "epoch", "batch", "pending", "is_empty", "prepared")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    IS_EMPTY_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    epoch: int
    batch: int
    pending: int
    is_empty: bool
    prepared: int
    def __init__(self, consumer: _Optional[str] = ..., epoch: _Optional[int] = ..., batch: _Optional[int] = ..., pending: _Optional[int] = ..., is_empty: _Optional[bool] = ..., prepared: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("batch", "jobs", "lost", "acked", "acked_lost", "prepared")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    ACKED_LOST_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    batch: int
    jobs: int
    lost: _containers.RepeatedScalarFieldContainer[str]
    acked: int
    acked_lost: _containers.RepeatedScalarFieldContainer[str]
    prepared: int
    def __init__(self, batch: _Optional[int] = ..., jobs: _Optional[int] = ..., lost: _Optional[_Iterable[str]] = ..., acked: _Optional[int] = ..., acked_lost: _Optional[_Iterable[str]] = ..., prepared: _Optional[int] = ...) -> None: ...

class BatchPage(_message.Message):
    __slots__ = ("jobs", "lost", "next_start")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    NEXT_START_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[bytes]
    lost: _containers.RepeatedScalarFieldContainer[str]
    next_start: int
    def __init__(self, jobs: _Optional[_Iterable[bytes]] = ..., lost: _Optional[_Iterable[str]] = ..., next_start: _Optional[int] = ...) -> None: ...

class ConsumerList(_message.Message):
    __slots__ = ("consumers",)
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    consumers: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, consumers: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: bool
    def __init__(self, found: _Optional[bool] = ...) -> None: ...

class Scheduled(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: str
    def __init__(self, result: _Optional[str] = ...) -> None: ...

class ScheduleList(_message.Message):
    __slots__ = ("schedules",)
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, schedules: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LimitList(_message.Message):
    __slots__ = ("limits",)
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    limits: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, limits: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BatchList(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, batches: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Announced(_message.Message):
    __slots__ = ("is_asked_to_finish",)
    IS_ASKED_TO_FINISH_FIELD_NUMBER: _ClassVar[int]
    is_asked_to_finish: bool
    def __init__(self, is_asked_to_finish: _Optional[bool] = ...) -> None: ...

class WorkerList(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, workers: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AuditList(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, actions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("fresh",)
    FRESH_FIELD_NUMBER: _ClassVar[int]
    fresh: bool
    def __init__(self, fresh: _Optional[bool] = ...) -> None: ...

class Waited(_message.Message):
    __slots__ = ("json", "progress")
    JSON_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    progress: bytes
    def __init__(self, json: _Optional[bytes] = ..., progress: _Optional[bytes] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("kind", "message", "retry_after_ms", "leader", "is_repeatable")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    IS_REPEATABLE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    retry_after_ms: int
    leader: str
    is_repeatable: bool
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., leader: _Optional[str] = ..., is_repeatable: _Optional[bool] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("hello", "calls", "token", "part", "more")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    token: str
    part: bytes
    more: bool
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., token: _Optional[str] = ..., part: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("welcome", "answers", "version")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    answers: _containers.RepeatedCompositeFieldContainer[Answer]
    version: int
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., answers: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ..., version: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("queue", "incarnation", "broker", "client", "token_id", "nonce", "partitions")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    incarnation: str
    broker: str
    client: str
    token_id: str
    nonce: bytes
    partitions: int
    def __init__(self, queue: _Optional[str] = ..., incarnation: _Optional[str] = ..., broker: _Optional[str] = ..., client: _Optional[str] = ..., token_id: _Optional[str] = ..., nonce: _Optional[bytes] = ..., partitions: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("incarnation", "broker", "epoch", "version", "proof", "operations")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    broker: str
    epoch: int
    version: int
    proof: bytes
    operations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, incarnation: _Optional[str] = ..., broker: _Optional[str] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., proof: _Optional[bytes] = ..., operations: _Optional[_Iterable[str]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("tag", "ttl_ms", "session", "number", "acknowledged_below", "since", "numbers", "counts", "push", "claim", "heartbeat", "complete", "complete_many", "fail", "release", "cancel", "redrive", "purge", "pause", "resume", "configure", "get", "list", "stats", "snapshot", "flush_archive", "grant_token", "revoke_token", "tokens", "open_consumer", "claim_batch", "read_batch", "ack_batch", "release_batch", "consumers", "remove_consumer", "publish", "withdraw", "release_many", "read_changes", "read_copy", "forget_history", "wait", "find_archived", "set_schedule", "remove_schedule", "pause_schedule", "resume_schedule", "run_schedule", "schedules", "set_limit", "remove_limit", "limits", "stage_object", "put_part", "keep_object", "read_part", "open_batch", "close_batch", "cancel_batch", "cancel_jobs", "set_priority", "batches", "announce", "drain", "workers", "audit", "settle_batch", "prepare_batch")
    TAG_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_BELOW_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_MANY_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_FIELD_NUMBER: _ClassVar[int]
    PURGE_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    CONFIGURE_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    FLUSH_ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    GRANT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVOKE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    OPEN_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CLAIM_BATCH_FIELD_NUMBER: _ClassVar[int]
    READ_BATCH_FIELD_NUMBER: _ClassVar[int]
    ACK_BATCH_FIELD_NUMBER: _ClassVar[int]
    RELEASE_BATCH_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    WITHDRAW_FIELD_NUMBER: _ClassVar[int]
    RELEASE_MANY_FIELD_NUMBER: _ClassVar[int]
    READ_CHANGES_FIELD_NUMBER: _ClassVar[int]
    READ_COPY_FIELD_NUMBER: _ClassVar[int]
    FORGET_HISTORY_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    FIND_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    SET_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    PAUSE_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    RESUME_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    RUN_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    SET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    REMOVE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STAGE_OBJECT_FIELD_NUMBER: _ClassVar[int]
    PUT_PART_FIELD_NUMBER: _ClassVar[int]
    KEEP_OBJECT_FIELD_NUMBER: _ClassVar[int]
    READ_PART_FIELD_NUMBER: _ClassVar[int]
    OPEN_BATCH_FIELD_NUMBER: _ClassVar[int]
    CLOSE_BATCH_FIELD_NUMBER: _ClassVar[int]
    CANCEL_BATCH_FIELD_NUMBER: _ClassVar[int]
    CANCEL_JOBS_FIELD_NUMBER: _ClassVar[int]
    SET_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    SETTLE_BATCH_FIELD_NUMBER: _ClassVar[int]
    PREPARE_BATCH_FIELD_NUMBER: _ClassVar[int]
    tag: int
    ttl_ms: int
    session: str
    number: int
    acknowledged_below: int
    since: int
    numbers: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    push: Push
    claim: Claim
    heartbeat: Heartbeat
    complete: Complete
    complete_many: CompleteMany
    fail: Fail
    release: Release
    cancel: Cancel
    redrive: Redrive
    purge: Purge
    pause: Pause
    resume: Resume
    configure: Configure
    get: Get
    list: List
    stats: ReadStats
    snapshot: ReadSnapshot
    flush_archive: FlushArchive
    grant_token: GrantToken
    revoke_token: RevokeToken
    tokens: ReadTokens
    open_consumer: OpenConsumer
    claim_batch: ClaimBatch
    read_batch: ReadBatch
    ack_batch: AckBatch
    release_batch: ReleaseBatch
    consumers: ReadConsumers
    remove_consumer: RemoveConsumer
    publish: Publish
    withdraw: Withdraw
    release_many: ReleaseMany
    read_changes: ReadChanges
    read_copy: ReadCopy
    forget_history: ForgetHistory
    wait: Wait
    find_archived: FindArchived
    set_schedule: SetSchedule
    remove_schedule: RemoveSchedule
    pause_schedule: PauseSchedule
    resume_schedule: ResumeSchedule
    run_schedule: RunSchedule
    schedules: ReadSchedules
    set_limit: SetLimit
    remove_limit: RemoveLimit
    limits: ReadLimits
    stage_object: StageObject
    put_part: PutPart
    keep_object: KeepObject
    read_part: ReadPart
    open_batch: OpenBatch
    close_batch: CloseBatch
    cancel_batch: CancelBatch
    cancel_jobs: CancelJobs
    set_priority: SetPriority
    batches: ReadBatches
    announce: Announce
    drain: DrainWorker
    workers: ReadWorkers
    audit: ReadAudit
    settle_batch: SettleBatch
    prepare_batch: PrepareBatch
    def __init__(self, tag: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., session: _Optional[str] = ..., number: _Optional[int] = ..., acknowledged_below: _Optional[int] = ..., since: _Optional[int] = ..., numbers: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., push: _Optional[_Union[Push, _Mapping]] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., complete: _Optional[_Union[Complete, _Mapping]] = ..., complete_many: _Optional[_Union[CompleteMany, _Mapping]] = ..., fail: _Optional[_Union[Fail, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., redrive: _Optional[_Union[Redrive, _Mapping]] = ..., purge: _Optional[_Union[Purge, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., configure: _Optional[_Union[Configure, _Mapping]] = ..., get: _Optional[_Union[Get, _Mapping]] = ..., list: _Optional[_Union[List, _Mapping]] = ..., stats: _Optional[_Union[ReadStats, _Mapping]] = ..., snapshot: _Optional[_Union[ReadSnapshot, _Mapping]] = ..., flush_archive: _Optional[_Union[FlushArchive, _Mapping]] = ..., grant_token: _Optional[_Union[GrantToken, _Mapping]] = ..., revoke_token: _Optional[_Union[RevokeToken, _Mapping]] = ..., tokens: _Optional[_Union[ReadTokens, _Mapping]] = ..., open_consumer: _Optional[_Union[OpenConsumer, _Mapping]] = ..., claim_batch: _Optional[_Union[ClaimBatch, _Mapping]] = ..., read_batch: _Optional[_Union[ReadBatch, _Mapping]] = ..., ack_batch: _Optional[_Union[AckBatch, _Mapping]] = ..., release_batch: _Optional[_Union[ReleaseBatch, _Mapping]] = ..., consumers: _Optional[_Union[ReadConsumers, _Mapping]] = ..., remove_consumer: _Optional[_Union[RemoveConsumer, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., withdraw: _Optional[_Union[Withdraw, _Mapping]] = ..., release_many: _Optional[_Union[ReleaseMany, _Mapping]] = ..., read_changes: _Optional[_Union[ReadChanges, _Mapping]] = ..., read_copy: _Optional[_Union[ReadCopy, _Mapping]] = ..., forget_history: _Optional[_Union[ForgetHistory, _Mapping]] = ..., wait: _Optional[_Union[Wait, _Mapping]] = ..., find_archived: _Optional[_Union[FindArchived, _Mapping]] = ..., set_schedule: _Optional[_Union[SetSchedule, _Mapping]] = ..., remove_schedule: _Optional[_Union[RemoveSchedule, _Mapping]] = ..., pause_schedule: _Optional[_Union[PauseSchedule, _Mapping]] = ..., resume_schedule: _Optional[_Union[ResumeSchedule, _Mapping]] = ..., run_schedule: _Optional[_Union[RunSchedule, _Mapping]] = ..., schedules: _Optional[_Union[ReadSchedules, _Mapping]] = ..., set_limit: _Optional[_Union[SetLimit, _Mapping]] = ..., remove_limit: _Optional[_Union[RemoveLimit, _Mapping]] = ..., limits: _Optional[_Union[ReadLimits, _Mapping]] = ..., stage_object: _Optional[_Union[StageObject, _Mapping]] = ..., put_part: _Optional[_Union[PutPart, _Mapping]] = ..., keep_object: _Optional[_Union[KeepObject, _Mapping]] = ..., read_part: _Optional[_Union[ReadPart, _Mapping]] = ..., open_batch: _Optional[_Union[OpenBatch, _Mapping]] = ..., close_batch: _Optional[_Union[CloseBatch, _Mapping]] = ..., cancel_batch: _Optional[_Union[CancelBatch, _Mapping]] = ..., cancel_jobs: _Optional[_Union[CancelJobs, _Mapping]] = ..., set_priority: _Optional[_Union[SetPriority, _Mapping]] = ..., batches: _Optional[_Union[ReadBatches, _Mapping]] = ..., announce: _Optional[_Union[Announce, _Mapping]] = ..., drain: _Optional[_Union[DrainWorker, _Mapping]] = ..., workers: _Optional[_Union[ReadWorkers, _Mapping]] = ..., audit: _Optional[_Union[ReadAudit, _Mapping]] = ..., settle_batch: _Optional[_Union[SettleBatch, _Mapping]] = ..., prepare_batch: _Optional[_Union[PrepareBatch, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("tag", "error", "done", "pushed", "claimed", "pulses", "completions", "failed", "cancelled", "count", "settings", "job", "page", "stats", "snapshot", "token", "revoked", "token_list", "opened", "batch", "batch_page", "consumer_list", "removed", "published", "releases", "change_page", "copy_part", "waited", "scheduled", "schedule_list", "limit_list", "staged", "part", "job_batch", "batch_list", "cancelled_jobs", "announced", "worker_list", "audit_list")
    TAG_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    PULSES_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LIST_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_PAGE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_LIST_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    CHANGE_PAGE_FIELD_NUMBER: _ClassVar[int]
    COPY_PART_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_LIST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_LIST_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    JOB_BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_LIST_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_JOBS_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    WORKER_LIST_FIELD_NUMBER: _ClassVar[int]
    AUDIT_LIST_FIELD_NUMBER: _ClassVar[int]
    tag: int
    error: Error
    done: bool
    pushed: Pushed
    claimed: Claimed
    pulses: Pulses
    completions: Completions
    failed: Failed
    cancelled: Cancelled
    count: Count
    settings: Document
    job: Document
    page: Page
    stats: Document
    snapshot: Document
    token: Document
    revoked: Revoked
    token_list: TokenList
    opened: Opened
    batch: Batch
    batch_page: BatchPage
    consumer_list: ConsumerList
    removed: Removed
    published: Published
    releases: Releases
    change_page: Document
    copy_part: Document
    waited: Waited
    scheduled: Scheduled
    schedule_list: ScheduleList
    limit_list: LimitList
    staged: Document
    part: Part
    job_batch: Document
    batch_list: BatchList
    cancelled_jobs: Document
    announced: Announced
    worker_list: WorkerList
    audit_list: AuditList
    def __init__(self, tag: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., done: _Optional[bool] = ..., pushed: _Optional[_Union[Pushed, _Mapping]] = ..., claimed: _Optional[_Union[Claimed, _Mapping]] = ..., pulses: _Optional[_Union[Pulses, _Mapping]] = ..., completions: _Optional[_Union[Completions, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., cancelled: _Optional[_Union[Cancelled, _Mapping]] = ..., count: _Optional[_Union[Count, _Mapping]] = ..., settings: _Optional[_Union[Document, _Mapping]] = ..., job: _Optional[_Union[Document, _Mapping]] = ..., page: _Optional[_Union[Page, _Mapping]] = ..., stats: _Optional[_Union[Document, _Mapping]] = ..., snapshot: _Optional[_Union[Document, _Mapping]] = ..., token: _Optional[_Union[Document, _Mapping]] = ..., revoked: _Optional[_Union[Revoked, _Mapping]] = ..., token_list: _Optional[_Union[TokenList, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., batch_page: _Optional[_Union[BatchPage, _Mapping]] = ..., consumer_list: _Optional[_Union[ConsumerList, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., published: _Optional[_Union[Published, _Mapping]] = ..., releases: _Optional[_Union[Releases, _Mapping]] = ..., change_page: _Optional[_Union[Document, _Mapping]] = ..., copy_part: _Optional[_Union[Document, _Mapping]] = ..., waited: _Optional[_Union[Waited, _Mapping]] = ..., scheduled: _Optional[_Union[Scheduled, _Mapping]] = ..., schedule_list: _Optional[_Union[ScheduleList, _Mapping]] = ..., limit_list: _Optional[_Union[LimitList, _Mapping]] = ..., staged: _Optional[_Union[Document, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., job_batch: _Optional[_Union[Document, _Mapping]] = ..., batch_list: _Optional[_Union[BatchList, _Mapping]] = ..., cancelled_jobs: _Optional[_Union[Document, _Mapping]] = ..., announced: _Optional[_Union[Announced, _Mapping]] = ..., worker_list: _Optional[_Union[WorkerList, _Mapping]] = ..., audit_list: _Optional[_Union[AuditList, _Mapping]] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ("queue", "incarnation", "leads")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    incarnation: str
    leads: int
    def __init__(self, queue: _Optional[str] = ..., incarnation: _Optional[str] = ..., leads: _Optional[int] = ...) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ("incarnation", "broker", "role", "epoch", "version", "commit_age_s", "leader", "partitions")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    broker: str
    role: Role
    epoch: int
    version: int
    commit_age_s: float
    leader: str
    partitions: int
    def __init__(self, incarnation: _Optional[str] = ..., broker: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., commit_age_s: _Optional[float] = ..., leader: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("queue", "incarnation", "partitions")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    incarnation: str
    partitions: int
    def __init__(self, queue: _Optional[str] = ..., incarnation: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class RequestId(_message.Message):
    __slots__ = ("session", "number", "acknowledged_below", "since")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_BELOW_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    session: str
    number: int
    acknowledged_below: int
    since: int
    def __init__(self, session: _Optional[str] = ..., number: _Optional[int] = ..., acknowledged_below: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("target", "id", "push")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    push: Push
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., push: _Optional[_Union[Push, _Mapping]] = ...) -> None: ...

class ClaimRequest(_message.Message):
    __slots__ = ("target", "id", "claim")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    claim: Claim
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("target", "id", "heartbeat")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    heartbeat: Heartbeat
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("target", "id", "complete")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    complete: Complete
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., complete: _Optional[_Union[Complete, _Mapping]] = ...) -> None: ...

class CompleteManyRequest(_message.Message):
    __slots__ = ("target", "id", "complete_many")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_MANY_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    complete_many: CompleteMany
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., complete_many: _Optional[_Union[CompleteMany, _Mapping]] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("target", "id", "fail")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    fail: Fail
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., fail: _Optional[_Union[Fail, _Mapping]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("target", "id", "release")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    release: Release
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ...) -> None: ...

class WithdrawRequest(_message.Message):
    __slots__ = ("target", "id", "withdraw")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WITHDRAW_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    withdraw: Withdraw
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., withdraw: _Optional[_Union[Withdraw, _Mapping]] = ...) -> None: ...

class ReleaseManyRequest(_message.Message):
    __slots__ = ("target", "id", "release_many")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_MANY_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    release_many: ReleaseMany
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., release_many: _Optional[_Union[ReleaseMany, _Mapping]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("target", "id", "cancel")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    cancel: Cancel
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ...) -> None: ...

class SetPriorityRequest(_message.Message):
    __slots__ = ("target", "id", "set_priority")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SET_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    set_priority: SetPriority
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., set_priority: _Optional[_Union[SetPriority, _Mapping]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("target", "id", "redrive")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    redrive: Redrive
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., redrive: _Optional[_Union[Redrive, _Mapping]] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("target", "id", "purge")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PURGE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    purge: Purge
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., purge: _Optional[_Union[Purge, _Mapping]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("target", "id", "pause")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    pause: Pause
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("target", "id", "resume")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    resume: Resume
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ...) -> None: ...

class ConfigureRequest(_message.Message):
    __slots__ = ("target", "id", "configure")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGURE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    configure: Configure
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., configure: _Optional[_Union[Configure, _Mapping]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("target", "id", "get")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    get: Get
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., get: _Optional[_Union[Get, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("target", "id", "list")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    list: List
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., list: _Optional[_Union[List, _Mapping]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("target", "id", "stats")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    stats: ReadStats
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., stats: _Optional[_Union[ReadStats, _Mapping]] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("target", "id", "snapshot")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    snapshot: ReadSnapshot
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., snapshot: _Optional[_Union[ReadSnapshot, _Mapping]] = ...) -> None: ...

class FlushArchiveRequest(_message.Message):
    __slots__ = ("target", "id", "flush_archive")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FLUSH_ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    flush_archive: FlushArchive
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., flush_archive: _Optional[_Union[FlushArchive, _Mapping]] = ...) -> None: ...

class GrantTokenRequest(_message.Message):
    __slots__ = ("target", "id", "grant_token")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    grant_token: GrantToken
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., grant_token: _Optional[_Union[GrantToken, _Mapping]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("target", "id", "revoke_token")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REVOKE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    revoke_token: RevokeToken
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., revoke_token: _Optional[_Union[RevokeToken, _Mapping]] = ...) -> None: ...

class TokensRequest(_message.Message):
    __slots__ = ("target", "id", "tokens")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    tokens: ReadTokens
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., tokens: _Optional[_Union[ReadTokens, _Mapping]] = ...) -> None: ...

class OpenConsumerRequest(_message.Message):
    __slots__ = ("target", "id", "open_consumer")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    open_consumer: OpenConsumer
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., open_consumer: _Optional[_Union[OpenConsumer, _Mapping]] = ...) -> None: ...

class ClaimBatchRequest(_message.Message):
    __slots__ = ("target", "id", "claim_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    claim_batch: ClaimBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., claim_batch: _Optional[_Union[ClaimBatch, _Mapping]] = ...) -> None: ...

class PrepareBatchRequest(_message.Message):
    __slots__ = ("target", "id", "prepare_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PREPARE_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    prepare_batch: PrepareBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., prepare_batch: _Optional[_Union[PrepareBatch, _Mapping]] = ...) -> None: ...

class ReadBatchRequest(_message.Message):
    __slots__ = ("target", "id", "read_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    READ_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    read_batch: ReadBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., read_batch: _Optional[_Union[ReadBatch, _Mapping]] = ...) -> None: ...

class AckBatchRequest(_message.Message):
    __slots__ = ("target", "id", "ack_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ACK_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    ack_batch: AckBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., ack_batch: _Optional[_Union[AckBatch, _Mapping]] = ...) -> None: ...

class ReleaseBatchRequest(_message.Message):
    __slots__ = ("target", "id", "release_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    release_batch: ReleaseBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., release_batch: _Optional[_Union[ReleaseBatch, _Mapping]] = ...) -> None: ...

class SettleBatchRequest(_message.Message):
    __slots__ = ("target", "id", "settle_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SETTLE_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    settle_batch: SettleBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., settle_batch: _Optional[_Union[SettleBatch, _Mapping]] = ...) -> None: ...

class ConsumersRequest(_message.Message):
    __slots__ = ("target", "id", "consumers")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    consumers: ReadConsumers
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., consumers: _Optional[_Union[ReadConsumers, _Mapping]] = ...) -> None: ...

class RemoveConsumerRequest(_message.Message):
    __slots__ = ("target", "id", "remove_consumer")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REMOVE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    remove_consumer: RemoveConsumer
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., remove_consumer: _Optional[_Union[RemoveConsumer, _Mapping]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("target", "id", "publish")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    publish: Publish
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ...) -> None: ...

class ReadChangesRequest(_message.Message):
    __slots__ = ("target", "id", "read_changes")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    READ_CHANGES_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    read_changes: ReadChanges
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., read_changes: _Optional[_Union[ReadChanges, _Mapping]] = ...) -> None: ...

class ReadCopyRequest(_message.Message):
    __slots__ = ("target", "id", "read_copy")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    READ_COPY_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    read_copy: ReadCopy
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., read_copy: _Optional[_Union[ReadCopy, _Mapping]] = ...) -> None: ...

class ForgetHistoryRequest(_message.Message):
    __slots__ = ("target", "id", "forget_history")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FORGET_HISTORY_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    forget_history: ForgetHistory
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., forget_history: _Optional[_Union[ForgetHistory, _Mapping]] = ...) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("target", "id", "wait")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    wait: Wait
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., wait: _Optional[_Union[Wait, _Mapping]] = ...) -> None: ...

class FindArchivedRequest(_message.Message):
    __slots__ = ("target", "id", "find_archived")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FIND_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    find_archived: FindArchived
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., find_archived: _Optional[_Union[FindArchived, _Mapping]] = ...) -> None: ...

class SetScheduleRequest(_message.Message):
    __slots__ = ("target", "id", "set_schedule")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SET_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    set_schedule: SetSchedule
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., set_schedule: _Optional[_Union[SetSchedule, _Mapping]] = ...) -> None: ...

class RemoveScheduleRequest(_message.Message):
    __slots__ = ("target", "id", "remove_schedule")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    remove_schedule: RemoveSchedule
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., remove_schedule: _Optional[_Union[RemoveSchedule, _Mapping]] = ...) -> None: ...

class PauseScheduleRequest(_message.Message):
    __slots__ = ("target", "id", "pause_schedule")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PAUSE_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    pause_schedule: PauseSchedule
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., pause_schedule: _Optional[_Union[PauseSchedule, _Mapping]] = ...) -> None: ...

class ResumeScheduleRequest(_message.Message):
    __slots__ = ("target", "id", "resume_schedule")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    resume_schedule: ResumeSchedule
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., resume_schedule: _Optional[_Union[ResumeSchedule, _Mapping]] = ...) -> None: ...

class RunScheduleRequest(_message.Message):
    __slots__ = ("target", "id", "run_schedule")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    run_schedule: RunSchedule
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., run_schedule: _Optional[_Union[RunSchedule, _Mapping]] = ...) -> None: ...

class SetLimitRequest(_message.Message):
    __slots__ = ("target", "id", "set_limit")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    set_limit: SetLimit
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., set_limit: _Optional[_Union[SetLimit, _Mapping]] = ...) -> None: ...

class RemoveLimitRequest(_message.Message):
    __slots__ = ("target", "id", "remove_limit")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REMOVE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    remove_limit: RemoveLimit
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., remove_limit: _Optional[_Union[RemoveLimit, _Mapping]] = ...) -> None: ...

class LimitsRequest(_message.Message):
    __slots__ = ("target", "id", "limits")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    limits: ReadLimits
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., limits: _Optional[_Union[ReadLimits, _Mapping]] = ...) -> None: ...

class SchedulesRequest(_message.Message):
    __slots__ = ("target", "id", "schedules")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    schedules: ReadSchedules
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., schedules: _Optional[_Union[ReadSchedules, _Mapping]] = ...) -> None: ...

class StageObjectRequest(_message.Message):
    __slots__ = ("target", "id", "stage_object")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_OBJECT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    stage_object: StageObject
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., stage_object: _Optional[_Union[StageObject, _Mapping]] = ...) -> None: ...

class PutPartRequest(_message.Message):
    __slots__ = ("target", "id", "put_part")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PUT_PART_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    put_part: PutPart
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., put_part: _Optional[_Union[PutPart, _Mapping]] = ...) -> None: ...

class KeepObjectRequest(_message.Message):
    __slots__ = ("target", "id", "keep_object")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_OBJECT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    keep_object: KeepObject
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., keep_object: _Optional[_Union[KeepObject, _Mapping]] = ...) -> None: ...

class ReadPartRequest(_message.Message):
    __slots__ = ("target", "id", "read_part")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    READ_PART_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    read_part: ReadPart
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., read_part: _Optional[_Union[ReadPart, _Mapping]] = ...) -> None: ...

class OpenBatchRequest(_message.Message):
    __slots__ = ("target", "id", "open_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    open_batch: OpenBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., open_batch: _Optional[_Union[OpenBatch, _Mapping]] = ...) -> None: ...

class CloseBatchRequest(_message.Message):
    __slots__ = ("target", "id", "close_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CLOSE_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    close_batch: CloseBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., close_batch: _Optional[_Union[CloseBatch, _Mapping]] = ...) -> None: ...

class CancelBatchRequest(_message.Message):
    __slots__ = ("target", "id", "cancel_batch")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_BATCH_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    cancel_batch: CancelBatch
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., cancel_batch: _Optional[_Union[CancelBatch, _Mapping]] = ...) -> None: ...

class CancelJobsRequest(_message.Message):
    __slots__ = ("target", "id", "cancel_jobs")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_JOBS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    cancel_jobs: CancelJobs
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., cancel_jobs: _Optional[_Union[CancelJobs, _Mapping]] = ...) -> None: ...

class BatchesRequest(_message.Message):
    __slots__ = ("target", "id", "batches")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    batches: ReadBatches
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., batches: _Optional[_Union[ReadBatches, _Mapping]] = ...) -> None: ...

class AnnounceRequest(_message.Message):
    __slots__ = ("target", "id", "announce")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    announce: Announce
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., announce: _Optional[_Union[Announce, _Mapping]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("target", "id", "drain")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    drain: DrainWorker
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., drain: _Optional[_Union[DrainWorker, _Mapping]] = ...) -> None: ...

class WorkersRequest(_message.Message):
    __slots__ = ("target", "id", "workers")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    workers: ReadWorkers
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., workers: _Optional[_Union[ReadWorkers, _Mapping]] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("target", "id", "audit")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    id: RequestId
    audit: ReadAudit
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., id: _Optional[_Union[RequestId, _Mapping]] = ..., audit: _Optional[_Union[ReadAudit, _Mapping]] = ...) -> None: ...

"""The workers of a queue, as data: which processes work on it, and which were asked to finish.

A worker announces itself with every heartbeat, also while it is idle. A broker keeps that in
memory. Without a broker, and for a worker that was asked to finish, it is a row of the object, so
that the request reaches the worker whichever process answers it. A row is renewed rarely, and
forgotten once its worker is silent.

``announcements`` says what each operation does.
"""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from bucketq.model.base import Operation

MOST_KINDS = 50
"""How many kinds a worker names: a row is written with every commit."""
RENEWALS = 5
"""How often a row is renewed within ``worker_retention_s``, so that some renewals may fail."""


class WorkerRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A worker as the object holds it."""

    id: str
    """New at each start: several workers may share a name, and a name is used again."""
    seq: int
    name: str
    """The name under which it claims jobs."""
    host: str
    pid: int
    version: str
    """The version of bucketq that it runs."""
    concurrency: int
    """How many handlers it runs at once."""
    since: datetime
    """When it started."""
    at: datetime
    """When it was last heard."""
    kinds: tuple[str, ...] = ()
    """The kinds that it works on, or the first ``MOST_KINDS``."""
    running: int = 0
    """How many jobs it held then."""
    draining: bool = False
    """Whether it claims no more jobs and ends, or was asked to."""

    def is_silent(self, retention_s: float, now: datetime) -> bool:
        """Whether it was not heard for so long that it is forgotten."""
        return now - self.at > timedelta(seconds=retention_s)


class WorkerInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker at the moment at which it was read."""

    id: str
    """New at each start of the worker."""
    name: str
    """The name under which it claims jobs."""
    host: str
    pid: int
    version: str
    """The version of bucketq that it runs."""
    kinds: tuple[str, ...]
    """The kinds that it works on; the first 50, if there are more."""
    concurrency: int
    """How many handlers it runs at once."""
    running: int
    """How many jobs it held when it was last heard."""
    since: datetime
    """When it started."""
    at: datetime
    """When it was last heard; without a broker this is written once a minute."""
    draining: bool
    """Whether it claims no more jobs and ends, or was asked to."""


class Announce(Operation, frozen=True):
    """Report that a worker is there. Answers whether it was asked to finish.

    That changes nothing if the worker is known, and was heard a short time ago.
    """

    id: str
    name: str
    host: str
    pid: int
    version: str
    concurrency: int
    up_s: float
    """How long ago it started."""
    kinds: tuple[str, ...] = ()
    running: int = 0
    draining: bool = False
    leaving: bool = False
    """Whether it ends now, and is to be forgotten."""

    def row(self, seq: int, now: datetime) -> WorkerRecord:
        """Return the row of a worker that was just heard."""
        return WorkerRecord(
            id=self.id,
            seq=seq,
            name=self.name,
            host=self.host,
            pid=self.pid,
            version=self.version,
            concurrency=self.concurrency,
            since=now - timedelta(seconds=self.up_s),
            at=now,
            kinds=self.kinds,
            running=self.running,
            draining=self.draining,
        )


class DrainWorker(Operation, frozen=True, tag="drain"):
    """Ask the workers of a name, or the one with an id, to finish. Answers how many."""

    worker: str


class ReadWorkers(Operation, frozen=True):
    """Read which workers there are. Answers a ``WorkerRecord`` for each, in order of their names.

    Those that were not heard for ``worker_retention_s`` are left out.
    """


AnyWorker = Announce | DrainWorker | ReadWorkers


def merged(
    rows: tuple[WorkerRecord, ...], heard: tuple[WorkerRecord, ...]
) -> tuple[WorkerRecord, ...]:
    """Put rows of the object and workers that a broker has heard together, in order of names."""
    found = {row.id: row for row in rows}
    for worker in heard:
        known = found.get(worker.id)
        is_draining = worker.draining or (known is not None and known.draining)
        found[worker.id] = replace(worker, draining=is_draining)
    return tuple(sorted(found.values(), key=lambda worker: (worker.name, worker.since, worker.id)))

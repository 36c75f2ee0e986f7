"""The audit table, as data: what operators did to a queue, when, and who it was.

It is kept whether or not the queue has a history, and is bounded: beyond ``max_audit`` rows the
oldest go. Only actions of operators add rows, so it costs the others nothing.

``audit_notes`` says which operations are noted, and how.
"""

from datetime import datetime

from msgspec import Struct

from bucketq.model.base import Operation


class AuditRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What an operator did, as the object holds it."""

    id: str
    seq: int
    at: datetime
    """When it was committed, by the clock of the writer; the first of several."""
    action: str
    """The operation: ``pause``, ``cancel``, ``configure``, ``edit`` and so on."""
    by: str
    """Who: the id of a token, or user and host of a process that wrote the object itself."""
    about: tuple[str, ...] = ()
    """What it was done to: a job, a kind, a setting. The first few, if there are several."""
    count: int = 0
    """How many jobs or other things it changed, if that is counted."""
    until: datetime | None = None
    """When it was last done, if that was repeated within a short time; None: it was not."""


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action of an operator."""

    at: datetime
    """When it was committed; the first of several."""
    action: str
    """What was done: ``pause``, ``cancel``, ``configure``, ``edit`` and so on."""
    by: str
    """Who did it: the id of a token, or user and host of a process that wrote the object itself."""
    about: tuple[str, ...]
    """What it was done to: jobs, kinds, settings; the first ten."""
    count: int
    """How many jobs or other things it changed, if that is counted."""
    until: datetime | None
    """When it was last done, if it was repeated within a minute; None: it was not."""


class ReadAudit(Operation, frozen=True):
    """Read what operators did. Answers an ``AuditRecord`` for each action, oldest first."""

    limit: int = 0
    """Only the latest so many; 0: all."""

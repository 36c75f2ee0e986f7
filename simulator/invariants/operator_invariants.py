"""Whether what operators do is kept: requests to workers, and the audit table.

A request to finish stays until its worker has ended, and reaches it by the next answer, whichever
process gives that. Every commit that pauses, resumes or configures the queue says so in its audit
table.
"""

from __future__ import annotations

from bucketq.model.audit_records import AuditRecord
from bucketq.model.state import State
from simulator.call_log import CallLog
from simulator.invariants.queue_invariants import CommitChain

_LATE_S = 2.0
"""How long a broker may answer from memory, before it sees what another process has written."""
_REMEMBERED_S = 200.0
"""For so long a request is certainly kept, even if its worker is not heard (300 s, less the
difference of two clocks)."""


def follow_operators(before: State | None, state: State) -> tuple[str, str] | None:
    """Check one version; return the broken promise and how it was broken, or None."""
    if len(state.workers) > state.settings.max_workers:
        return "the list of workers is bounded", f"{len(state.workers)} workers"
    if len(state.audit) > state.settings.max_audit:
        return "the audit table is bounded", f"{len(state.audit)} rows"
    if before is None:
        return None
    for row in before.workers:
        kept = state.workers.get(row.id)
        if row.draining and kept is not None and not kept.draining:
            return "a request to finish is kept", f"worker {row.name}"
    if _operated(before) != _operated(state) and _last(before) == _last(state):
        return "what operators do is audited", f"after {_last(state)}"
    return None


def check_drains(chain: CommitChain, history: CallLog) -> None:
    """Raise ``InvariantError`` at the first worker that was not told, or told without a reason."""
    asked: dict[str, float] = {}
    reasons = set[str]()
    for call in history.calls:
        if call.verb == "drain" or (call.verb == "announce" and call.detail["draining"]):
            reasons.add(call.actor)
        if call.verb == "drain" and call.succeeded and call.ended_s is not None:
            asked.setdefault(call.actor, call.ended_s)
    for call in history.calls:
        if call.verb != "announce" or not call.succeeded or call.detail["leaving"]:
            continue
        since_s = asked.get(call.actor)
        if (
            since_s is not None
            and _LATE_S < call.began_s - since_s < _REMEMBERED_S
            and not call.answer
        ):
            chain.violate("a worker learns that it is to finish", str(call), call.ended_version)
        if call.answer and call.actor not in reasons:
            chain.violate("no worker is told to finish without a reason", str(call))


def _operated(state: State) -> tuple[object, ...]:
    return (state.settings, state.paused, tuple(state.paused_kinds), tuple(state.tokens))


def _last(state: State) -> AuditRecord | None:
    block = next(reversed(state.audit.blocks.values()), None)
    return None if block is None else block[-1]

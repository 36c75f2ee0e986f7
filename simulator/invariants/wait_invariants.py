"""Whether waits for jobs were answered truly.

A wait that reports an end does so after the commit that ended the job, and one that reports nothing
began while the job was not over. A job that was pushed is found for ever, in the queue or in its
archive.
"""

from __future__ import annotations

from simulator.call_log import CallLog, RecordedCall
from simulator.invariants.queue_invariants import CommitChain

_ENDS = {
    "completed": {"status": "done", "outcome": "completed"},
    "cancelled": {"status": "done", "outcome": "cancelled"},
}


def check_waits(chain: CommitChain, history: CallLog) -> None:
    """Raise ``InvariantError`` at the first wait that was answered wrongly."""
    for call in history.calls:
        if call.verb == "wait" and call.succeeded:
            _check(chain, call)


def _check(chain: CommitChain, call: RecordedCall) -> None:
    job_id, first, last = call.detail["job"], chain.known_since(call), call.ended_version
    records = chain.records.get(job_id, [])
    if call.answer == "missing":
        # Jobs are known to the actors once a commit holds them.
        if records and records[0][0] <= first:
            chain.violate("a job that was pushed is found", str(call), last)
        return
    if call.answer == "not over":
        is_open = any(
            chain.holds(job_id, first, last, status=status) for status in ("queued", "running")
        )
        if records and records[0][0] <= first and not is_open:
            chain.violate("a wait sees the end of a job", str(call), last)
        return
    fields = _ENDS.get(call.answer)
    ends = (fields,) if fields else ({"status": "dead"}, {"status": "done", "outcome": "dead"})
    if not any(chain.holds(job_id, first, last, **end) for end in ends):
        chain.violate("a result is committed before it is shown", str(call), last)

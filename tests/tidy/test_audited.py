"""No action of operators is missing in the audit table."""

from __future__ import annotations

from bucketq.model import history, numbered_batches
from bucketq.model import operations as ops
from bucketq.model.effects.access import _NEEDS
from bucketq.model.oversight.audit_notes import DESCRIBED
from bucketq.model.side_objects import TRANSFERS
from bucketq.rpc.messages import OFFERED


def test_what_needs_the_right_admin_is_audited_or_a_read() -> None:
    reads = {*ops.READS, *ops.HISTORY_READS, *TRANSFERS}
    forgotten = [
        each.__name__
        for each in OFFERED
        if each not in _NEEDS and each not in reads and each not in DESCRIBED
    ]
    assert not forgotten, f"add {forgotten} to DESCRIBED in model/oversight/audit_notes.py"


def test_work_on_jobs_is_not_audited() -> None:
    assert not {*_NEEDS} & {*DESCRIBED}
    assert {ops.Push, ops.Claim, ops.Complete} <= {*_NEEDS}
    assert {history.ForgetHistory, numbered_batches.RemoveConsumer} <= {*DESCRIBED}

"""What the machine does with workers, and what must hold of their rows and of the audit table."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from msgspec import structs

from bucketq.model.worker_records import Announce, DrainWorker
from tests.unit.model.bulk_rules import BulkRules

sender = st.tuples(st.sampled_from(["", "x", "x", "y", "z"]), st.integers(0, 6))
which = st.integers(0, 4)
end = st.sampled_from(["", "", "", "", "draining", "leaving"])


class WorkerRules(BulkRules):
    """The part of the machine that is about workers and the audit table."""

    @rule(number=which, ends=end)
    def announce(self, number: int, ends: str) -> None:
        worker = Announce(
            id=f"run-{number}",
            name=f"worker-{number % 3}",
            host="h",
            pid=number,
            version="1",
            concurrency=1 + number,
            up_s=float(number),
            kinds=("a", "b")[: number % 3],
            running=number % 2,
            draining=ends == "draining",
            leaving=ends == "leaving",
        )
        self.send(worker)

    @rule(number=which, by_id=st.booleans(), by=sender)
    def drain(self, number: int, by_id: bool, by: tuple[str, int]) -> None:
        self.send(DrainWorker(worker=f"run-{number}" if by_id else f"worker-{number}"), by)

    @invariant()
    def workers_are_those_of_the_reference(self) -> None:
        for state in (self.state, self.twin.state):
            rows = {row.id: structs.asdict(row) for row in state.workers}
            for row in rows.values():
                del row["seq"]
            assert rows == self.reference.workers
            oldest = min((row.at for row in state.workers), default=None)
            found = state.workers.oldest()
            assert (found.at if found else None) == oldest

    @invariant()
    def the_last_actions_are_audited(self) -> None:
        rows, actions = list(self.state.audit), self.reference.actions
        assert list(self.twin.state.audit) == rows
        assert len(rows) <= max(1, self.reference.settings.max_audit)
        assert (rows[-1].action if rows else None) == (actions[-1] if actions else None)

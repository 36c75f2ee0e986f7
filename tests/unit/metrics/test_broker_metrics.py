"""What a broker process counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from bucketq import JobSpec
from bucketq.broker.broker import Broker
from bucketq.broker.broker_observer import CommitFacts
from bucketq.broker.server import Server
from bucketq.errors import LeaseLostError, UnavailableError
from bucketq.metrics import queue_collector
from bucketq.metrics.bounded_labels import BoundedLabels
from bucketq.metrics.broker_metrics import BrokerMetrics
from bucketq.metrics.measured_register import MeasuredRegister
from bucketq.metrics.queue_collector import QueueCollector
from bucketq.model.operations import Claim, CompleteMany, Fail
from bucketq.store.base import PreconditionFailedError
from bucketq.store.resolve_write import Verdict
from tests.unit.broker.leaders import ADA, Led, Realm
from tests.unit.commit.worlds import KEY, lose_answer, settle, virtual


class Counted:
    """Metrics of a process with one queue."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = BrokerMetrics(self.registry)
        self.queue = self.metrics.observe("jobs")

    def __call__(self, name: str, **labels: str) -> float | None:
        value: float | None = self.registry.get_sample_value(name, labels)
        return value


def test_commits_are_counted_by_outcome_and_measured() -> None:
    counted = Counted()
    counted.queue.committed(CommitFacts(Verdict.LANDED, 0.02, 5000, 7, was_in_doubt=False))
    counted.queue.committed(CommitFacts(Verdict.LOST, 0.3, 5000, 1, was_in_doubt=True))
    assert counted("bucketq_commits_total", queue="jobs", outcome="landed") == 1
    assert counted("bucketq_commits_total", queue="jobs", outcome="lost") == 1
    assert counted("bucketq_commits_total", queue="jobs", outcome="forgotten") == 0
    assert counted("bucketq_commit_doubts_resolved_total", queue="jobs") == 1
    assert counted("bucketq_commit_seconds_bucket", queue="jobs", le="0.025") == 1
    assert counted("bucketq_commit_bytes_sum", queue="jobs") == 10_000
    assert counted("bucketq_commit_requests_sum", queue="jobs") == 8


def test_answers_are_counted_by_operation_and_result() -> None:
    counted = Counted()
    claim = Claim(worker="w", secret="s")
    counted.queue.answered(claim, ("a", "b"), None, 0.01)
    counted.queue.answered(Claim(worker="w", secret="s", wait_s=20.0), (), None, 19.0)
    counted.queue.answered(CompleteMany(jobs=()), (True, False, True), None, 0.01)
    failed = Fail(job="j", lease="l", error="no")
    counted.queue.answered(failed, "queued", None, 0.01)
    counted.queue.answered(failed, "dead", None, 0.01)
    counted.queue.answered(failed, None, LeaseLostError("lost"), 0.01)
    counted.queue.answered(Fail(job="j", lease="l", error="", snooze=True), "queued", None, 0.01)
    counted.queue.lease_expired()
    assert counted("bucketq_claimed_jobs_total", queue="jobs") == 2
    assert counted("bucketq_completed_jobs_total", queue="jobs") == 2
    assert counted("bucketq_failed_attempts_total", queue="jobs", status="queued") == 1
    assert counted("bucketq_failed_attempts_total", queue="jobs", status="dead") == 1
    assert counted("bucketq_operations_total", operation="fail", result="lease_lost") == 1
    assert counted("bucketq_operations_total", operation="complete_many", result="ok") == 1
    assert counted("bucketq_operation_seconds_count", operation="claim") == 1, "one has waited"
    assert counted("bucketq_lost_leases_total", queue="jobs") == 1


def test_requests_to_the_storage_are_counted_by_error() -> None:
    counted = Counted()
    for error in (None, PreconditionFailedError("x"), UnavailableError("x"), ValueError("x")):
        counted.metrics.stored("replace", 0.01, error)
    for result in ("ok", "conflict", "unavailable", "failed"):
        name = "bucketq_storage_requests_total"
        assert counted(name, request="replace", result=result) == 1, result


def test_names_after_the_limit_are_one_series() -> None:
    names = BoundedLabels(2)
    assert [names(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]


class Shown:
    """The gauges of queues."""

    def __init__(self, realm: Realm, queues: dict[str, Led | None], most: int = 10) -> None:
        brokers = {
            name: SimpleNamespace(leader=led and led._committer) for name, led in queues.items()
        }
        server = cast("Server", SimpleNamespace(brokers=brokers))
        self.collector = QueueCollector(server, realm.clock, BoundedLabels(most))

    async def __call__(self) -> dict[str, float]:
        """All gauges, by name and values of labels."""
        await self.collector.read()
        return {
            " ".join((sample.name, *sample.labels.values())): sample.value
            for metric in self.collector.collect()
            for sample in metric.samples
        }


@pytest.mark.shallow
@virtual
async def test_a_queue_that_is_led_is_shown_as_it_is_in_memory() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push_many([JobSpec(kind="mail", payload=n) for n in range(3)])
        await leader.push("report", 1)
        (job,) = await leader.claim("mail")
        await leader.complete(job)
        await settle()
        realm.store.calls.clear()
        shown = await Shown(realm, {"jobs": leader, "other": None})()
        assert not realm.store.calls
    assert shown["bucketq_jobs jobs mail queued"] == 2
    assert shown["bucketq_jobs jobs report queued"] == 1
    assert shown["bucketq_jobs jobs mail done"] == 1
    assert shown["bucketq_archive_waiting_jobs jobs"] == 1
    assert shown["bucketq_broker_epoch jobs"] == 1
    assert shown["bucketq_broker_leading jobs"] == 1
    assert shown["bucketq_broker_leading other"] == 0
    assert shown["bucketq_oldest_queued_seconds jobs"] >= 0
    assert "bucketq_head_bytes other" not in shown, "a standby knows no queue"


@pytest.mark.shallow
@virtual
async def test_queues_and_kinds_without_a_name_of_their_own_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_collector, "MOST_KINDS", 1)
    realm = Realm()
    async with realm.leader() as leader:
        for kind in ("a", "b", "c"):
            await leader.push(kind, 1)
        shown = await Shown(realm, {"x": leader, "y": leader, "z": leader}, most=1)()
    jobs = {name: count for name, count in shown.items() if name.startswith("bucketq_jobs ")}
    assert jobs == {
        "bucketq_jobs x a queued": 1,
        "bucketq_jobs x other queued": 2,
        "bucketq_jobs other a queued": 2,
        "bucketq_jobs other other queued": 4,
    }
    assert shown["bucketq_broker_leading other"] == 2
    assert shown["bucketq_oldest_queued_seconds other"] == shown["bucketq_oldest_queued_seconds x"]


@virtual
async def test_a_leader_reports_leases_that_expire() -> None:
    seen: list[str] = []
    realm = Realm()
    async with realm.leader() as leader:
        hooks: Any = leader._committer._hooks  # type: ignore[attr-defined]  # of a leader
        hooks._observer = SimpleNamespace(lease_expired=lambda: seen.append("expired"))
        await leader.configure(lease_s=5, heartbeat_s=1, grace_s=0)
        await leader.push("mail", 1)
        await leader.claim()
        assert not seen
        await asyncio.sleep(20)
    assert seen == ["expired"]


@virtual
async def test_commits_are_reported_with_what_became_of_them() -> None:
    seen: list[CommitFacts] = []
    realm = Realm()
    register = MeasuredRegister(realm.store, KEY, "test://queue", realm.clock)
    await register.open(create=True)
    async with realm._led(register, ADA, 0, 20.0) as leader:
        register.broker = cast(
            "Broker",
            SimpleNamespace(
                observer=SimpleNamespace(committed=seen.append), leader=leader._committer
            ),
        )
        await leader.push("mail", 1)
        realm.store.plan("replace", lose_answer)
        await asyncio.gather(leader.push("mail", 2), leader.push("mail", 3))
    in_doubt = [facts.was_in_doubt for facts in seen]
    assert in_doubt[0] is False
    assert in_doubt.count(True) == 1
    assert {facts.verdict for facts in seen} == {Verdict.LANDED}
    assert seen[0].requests == 1
    assert seen[0].size_bytes > 500

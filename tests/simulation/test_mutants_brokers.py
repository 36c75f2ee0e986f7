"""The same for what brokers and their clients promise: without its reason, each breaks.

One reason is missing here. That a connection names the broker's id cannot be shown to be needed:
a ping names it as well, the queue's incarnation is checked by server and transport, and whoever
leads the same queue at the same address under another id is a good broker of it.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.broker import leader as leader_module
from bucketq.broker import standby, takeover
from bucketq.broker.broker import Broker
from bucketq.broker.broker_connection import RemoteRequest
from bucketq.broker.leader import Leader, _LeaderHooks
from bucketq.broker.lease_expiry import LeaseExpiry
from bucketq.broker.server import Server
from bucketq.broker.standby import Standby
from bucketq.broker.takeover import Identity, Sign
from bucketq.client import discovery
from bucketq.client import remote_committer as remote_module
from bucketq.codec.document import Document
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.parked_claims import ParkedClaims
from bucketq.commit.pending_requests import PendingRequest
from bucketq.commit.working_state import WorkingState
from bucketq.model import transitions
from bucketq.model.effects import brokers
from bucketq.model.operations import Expire, Lead, Push, Request, Retire
from bucketq.model.records import BrokerRecord
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.rpc.messages import Ping
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError, Transport
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch


def test_a_deposed_broker_that_goes_on_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(leader_module, "check_leads", lambda *_: None)
    expect("only the broker that is recorded writes", faults="freezes", scenario="brokers")


@pytest.mark.full
def test_a_takeover_that_does_not_say_what_it_follows_is_noticed(monkeypatch: Patch) -> None:
    def lead(state: State, operation: Lead, now: datetime) -> BrokerRecord:
        return brokers.lead(state, replace(operation, after=state.epoch), now)

    handlers: dict[Any, Any] = {**transitions._HANDLERS, Lead: lead}
    monkeypatch.setattr(transitions, "_HANDLERS", handlers)
    expect("a living broker is left alone", faults="nothing", scenario="brokers")


def test_a_broker_that_answers_before_the_commit_is_noticed(monkeypatch: Patch) -> None:
    def apply_and_tell(self: WorkingState, waiting: PendingRequest, document: Document) -> None:
        apply_really(self, waiting, document)
        applied = waiting.applied
        if isinstance(waiting.request.operation, Push) and applied is not None:
            waiting.resolve(applied.answer, applied.error)

    apply_really = WorkingState._apply
    monkeypatch.setattr(WorkingState, "_apply", apply_and_tell)
    expect("acknowledged means durable", "no answer before its commit", scenario="brokers")


@pytest.mark.full
def test_heartbeats_answered_without_a_proof_are_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(leader_module, "PROOF_S", 1e9)
    expect("held means held", "a claim finds what is there", scenario=None, seeds=100)


def test_answers_from_memory_without_a_look_at_the_object_are_noticed(monkeypatch: Patch) -> None:
    async def confirm(self: GroupCommitter, _: Document) -> None:
        self.working.looked_at = asyncio.get_running_loop().time()
        self.working.answer_in_flight(None)

    monkeypatch.setattr(GroupCommitter, "_confirm", confirm)
    expect(
        "a claim finds what is there",
        "held means held",
        "no read is older than its question",
        scenario="mixed",
    )


def test_a_takeover_that_starts_all_leases_anew_is_noticed(monkeypatch: Patch) -> None:
    def follow(self: LeaseExpiry, state: State, now_s: float) -> None:
        known = {job_id: heard for job_id, heard in self._heard.items() if job_id in state.running}
        follow_really(self, state, now_s)
        for job_id in state.running:
            attempt = state.jobs.by_id[job_id].attempt
            if known.get(job_id, (0, 0.0))[0] != attempt:
                self._heard[job_id] = (attempt, now_s)

    follow_really = LeaseExpiry._follow
    monkeypatch.setattr(LeaseExpiry, "_follow", follow)
    expect("the jobs of the dead are reclaimed", faults="leader-kills", scenario="brokers")


def test_a_broker_that_does_not_hear_who_writes_directly_is_noticed(monkeypatch: Patch) -> None:
    def follow(self: LeaseExpiry, state: State, now_s: float) -> None:
        self._written = {}
        follow_really(self, state, now_s)

    follow_really = LeaseExpiry._follow
    monkeypatch.setattr(LeaseExpiry, "_follow", follow)
    expect("no lease is taken from a healthy worker", faults="nothing", scenario="mixed", first=22)


def test_silence_judged_by_wall_clocks_is_noticed(monkeypatch: Patch) -> None:
    def before_commit(
        self: _LeaderHooks, state: State, parked: ParkedClaims, looked_s: float
    ) -> None:
        now = self._clock.now()
        for job in [state.jobs.by_id[job_id] for job_id in state.running]:
            heard_at = job.heartbeat_at or now
            if now - heard_at > timedelta(seconds=state.settings.lease_s):
                apply(state, Request(Expire(job=job.id, attempt=job.attempt)), now)
        before_really(self, state, parked, looked_s)

    before_really = _LeaderHooks.before_commit
    monkeypatch.setattr(_LeaderHooks, "before_commit", before_commit)
    expect("no lease is taken from a healthy worker", faults="kills", scenario="brokers")


def test_a_broker_without_grace_is_noticed(monkeypatch: Patch) -> None:
    def stale(self: LeaseExpiry, state: State, now_s: float) -> list[Expire]:
        self._listening_since_s = -1e9
        self._ticked_s = now_s
        return stale_really(self, state, now_s)

    stale_really = LeaseExpiry.stale
    monkeypatch.setattr(LeaseExpiry, "stale", stale)
    expect(
        "no lease is taken from a healthy worker",
        faults="freezes",
        scenario="brokers",
        first=57,
        seeds=60,
    )


def test_sending_again_under_another_id_is_noticed(monkeypatch: Patch) -> None:
    def sent_before(request: Request, version: int) -> Request:
        del version
        return replace(request, number=request.number + 1000)

    monkeypatch.setattr(remote_module, "_sent_before", sent_before)
    expect(
        "nothing refused takes effect",
        "nothing takes effect twice",
        "a job that has left stays away",
        scenario="brokers",
        first=9,
        seeds=100,
    )


@pytest.mark.full
def test_sending_again_without_saying_since_when_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(remote_module, "_sent_before", lambda request, _version: request)
    expect(
        "nothing refused takes effect",
        "nothing takes effect twice",
        "a job that has left stays away",
        scenario="brokers",
        first=80,
        seeds=100,
    )


def test_a_broker_that_clears_its_successors_address_is_noticed(monkeypatch: Patch) -> None:
    async def retire(self: Broker) -> None:
        await retire_really(self)
        document = await self._register.load()
        record = document.state.broker
        if record is not None:
            request = Request(Retire(id=record.id, epoch=record.epoch))
            apply(document.state, request, self._clock.now())
            if document.state.has_changes:
                await self._register.commit(document, self._register.prepare(document))

    retire_really = Broker.retire
    monkeypatch.setattr(Broker, "retire", retire)
    expect("only the broker that is recorded writes", faults="restarts", scenario="brokers")


def test_a_server_that_serves_whatever_it_has_is_noticed(monkeypatch: Patch) -> None:
    def find(self: Server, *_: str) -> Broker:
        return next(iter(self.brokers.values()))

    monkeypatch.setattr(Server, "_find", find)
    expect(
        "acknowledged means durable",
        "a claim finds what is there",
        scenario="brokers",
        first=56,
        seeds=150,
    )


def _probe_instead(monkeypatch: Patch, judge: Any) -> None:
    async def probe(
        transport: Transport, record: BrokerRecord, incarnation: str, _leads: int | None = None
    ) -> Sign:
        try:
            pong = await transport.ping(record.address, Ping(incarnation=incarnation), 1.5)
        except NoBrokerThereError:
            return Sign.GONE
        except ConnectionLostError:
            return Sign.SILENT
        return Sign.ALIVE if judge(pong, record) else Sign.GONE

    for module in (takeover, standby, discovery):
        monkeypatch.setattr(module, "probe", probe)


def test_taking_slow_storage_for_a_dead_broker_is_noticed(monkeypatch: Patch) -> None:
    _probe_instead(monkeypatch, lambda pong, _: pong.role == "leading" and pong.commit_age_s < 2)
    expect(
        "a living broker is left alone",
        "takeovers cease",
        faults="slow-storage",
        scenario="brokers",
    )


def test_replacing_a_broker_that_does_not_know_yet_that_it_leads_is_noticed(
    monkeypatch: Patch,
) -> None:
    _probe_instead(
        monkeypatch, lambda pong, record: pong.role == "leading" and pong.broker == record.id
    )
    expect(
        "a living broker is left alone",
        faults="slow-storage",
        scenario="brokers",
        first=54,
        seeds=100,
    )


def test_a_broker_that_fights_is_noticed(monkeypatch: Patch) -> None:
    async def vacancy(self: Standby, identity: Identity, incarnation: str) -> int:
        self.takeover = True
        return await vacancy_really(self, identity, incarnation)

    vacancy_really = Standby.vacancy
    monkeypatch.setattr(Standby, "vacancy", vacancy)
    expect("a living broker is left alone", faults="nothing", scenario="brokers")


@pytest.mark.full
def test_jobs_for_claims_of_clients_that_are_gone_are_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Leader, "forget", lambda *_: None)
    monkeypatch.setattr(RemoteRequest, "is_resolved", property(lambda self: self._is_resolved))
    expect("no job is handed to the dead", faults="kills", scenario="many-clients", first=20)

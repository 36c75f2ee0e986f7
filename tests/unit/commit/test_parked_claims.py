"""Parked claims: first come, first served, among those for which there is a job."""

from __future__ import annotations

from collections.abc import Iterable

from bucketq.commit.parked_claims import ParkedClaims
from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.operations import Claim, Pause, Request, Resume, Withdraw
from tests.unit.model.driver import Driver


class Desk:
    """Parked claims, and a queue that jobs are pushed to. The secret of a claim is its name."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.parked = ParkedClaims()

    def park(self, name: str, *kinds: str, until: float = 100.0) -> PendingRequest:
        pending = PendingRequest(Request(Claim(worker="w", secret=name, kinds=kinds)), 0, 0.0)
        pending.until = until
        self.parked.add(pending)
        return pending

    def serve(self) -> list[str]:
        """Hand out all jobs; return which claims got one, in order."""
        served = []
        while pending := self.parked.next_servable(self.driver.state, self.driver.now):
            claim = pending.request.operation
            assert isinstance(claim, Claim)
            assert len(self.driver.claim(*claim.kinds)) == 1, "there is no job for it"
            served.append(claim.secret)
        return served

    def expire(self, now_s: float) -> list[str]:
        return names(self.parked.take_expired(now_s))


def names(claims: Iterable[PendingRequest]) -> list[str]:
    return [str(getattr(claim.request.operation, "secret", "")) for claim in claims]


def test_the_oldest_claim_is_served_first_whatever_its_kinds() -> None:
    desk = Desk()
    for name, kinds in [("a", ("mail",)), ("b", ()), ("c", ("index", "mail")), ("d", ("mail",))]:
        desk.park(name, *kinds)
    desk.driver.push_many("1", "2", "3", kind="mail")
    assert desk.serve() == ["a", "b", "c"]
    desk.driver.push("4", "mail")
    assert desk.serve() == ["d"]
    assert len(desk.parked) == 0


def test_a_claim_gets_only_jobs_of_its_kinds() -> None:
    desk = Desk()
    desk.park("a", "mail")
    desk.park("b", "index")
    desk.driver.push_many("1", "2", kind="index")
    assert desk.serve() == ["b"]
    assert names(desk.parked) == ["a"]


def test_a_claim_without_a_matching_job_does_not_block_later_claims() -> None:
    desk = Desk()
    for number in range(50):
        desk.park(f"never-{number}", f"kind-{number}")
    desk.park("any")
    desk.driver.push("1", "mail")
    assert desk.serve() == ["any"]
    assert len(desk.parked) == 50


def test_jobs_of_a_paused_kind_are_not_handed_out() -> None:
    desk = Desk()
    desk.park("mail", "mail")
    desk.park("any")
    desk.driver.push("1", "mail")
    desk.driver.ok(Pause(kind="mail"))
    assert desk.serve() == []
    desk.driver.push("2", "index")
    assert desk.serve() == ["any"]
    desk.driver.ok(Resume(kind="mail"))
    assert desk.serve() == ["mail"]


def test_a_paused_queue_serves_no_claim() -> None:
    desk = Desk()
    desk.park("any")
    desk.driver.push("1")
    desk.driver.ok(Pause())
    assert desk.serve() == []
    desk.driver.ok(Resume())
    assert desk.serve() == ["any"]


def test_a_delayed_job_is_handed_out_when_it_is_due() -> None:
    desk = Desk()
    desk.park("any")
    desk.driver.push("1", delay_s=5)
    assert desk.serve() == []
    desk.driver.wait(5)
    assert desk.serve() == ["any"]


def test_claims_expire_in_order_and_once() -> None:
    desk = Desk()
    desk.park("late", until=30)
    desk.park("soon", until=10)
    desk.park("then", until=20)
    assert desk.parked.next_expiry() == 10
    assert desk.expire(9.9) == []
    assert desk.expire(20) == ["soon", "then"]
    assert desk.parked.next_expiry() == 30
    assert names(desk.parked) == ["late"]


def test_a_claim_that_was_served_or_withdrawn_does_not_expire() -> None:
    desk = Desk()
    withdrawn = desk.park("withdrawn", until=10)
    desk.park("served", until=10)
    assert desk.parked.discard(withdrawn)
    assert not desk.parked.discard(withdrawn)
    desk.driver.push("1")
    assert desk.serve() == ["served"]
    assert desk.parked.next_expiry() is None
    assert desk.expire(100) == []


def test_withdrawing_a_claim_removes_its_copies_and_no_others() -> None:
    desk = Desk()
    for kind in ("mail", "index", "mail"):
        desk.park("withdrawn", kind)
    desk.park("other", "mail")
    withdraw = Withdraw(session="", number=0, secret="withdrawn")
    assert set(names(desk.parked.withdraw(withdraw))) == {"withdrawn"}
    assert desk.parked.withdraw(withdraw) == []
    assert names(desk.parked) == ["other"]
    desk.driver.push("1", "mail")
    assert desk.serve() == ["other"]


def test_a_claim_that_is_parked_again_is_last_and_expires_once() -> None:
    desk = Desk()
    again = desk.park("again", until=10)
    desk.park("other", until=50)
    desk.parked.discard(again)
    again.until = 60
    desk.parked.add(again)
    desk.driver.push("1")
    assert desk.serve() == ["other"]
    assert desk.expire(50) == []
    assert desk.expire(60) == ["again"]


def test_removed_claims_free_their_memory() -> None:
    desk = Desk()
    stays = desk.park("stays")
    for number in range(10_000):
        desk.parked.discard(desk.park(str(number), f"kind-{number}"))
    assert list(desk.parked) == [stays]
    assert len(desk.parked._lines) == 1
    assert len(desk.parked._timers) < 100


def test_many_claims_of_one_kind_cost_one_lookup() -> None:
    desk = Desk()
    for number in range(20_000):
        desk.park(str(number), "mail")
    looked_at = 0
    first_of = desk.driver.state.waiting.first_of

    def counting(*args: object) -> object:
        nonlocal looked_at
        looked_at += 1
        return first_of(*args)  # type: ignore[arg-type]

    desk.driver.state.waiting.first_of = counting  # type: ignore[method-assign, assignment]
    assert desk.parked.next_servable(desk.driver.state, desk.driver.now) is None
    assert looked_at == 1

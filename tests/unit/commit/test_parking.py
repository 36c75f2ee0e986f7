"""Claims that wait: first come, first served, among those for which there is a job."""

from __future__ import annotations

from dataclasses import dataclass

from bucketq.commit.parking import Parking
from bucketq.model.operations import Pause, Resume
from tests.unit.model.driver import Driver


@dataclass(eq=False)
class Claim:
    """A claim that somebody waits for."""

    name: str
    kinds: tuple[str, ...] = ()
    until: float = 100.0

    @property
    def secret(self) -> str:
        return self.name


class Garage:
    """A parking, and a queue that jobs are pushed to."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.parking: Parking[Claim] = Parking()

    def park(self, name: str, *kinds: str, until: float = 100.0) -> Claim:
        claim = Claim(name, kinds, until)
        self.parking.add(claim)
        return claim

    def serve(self) -> list[str]:
        """Hand out what there is; return who got something, in order."""
        served = []
        while claim := self.parking.next_servable(self.driver.state, self.driver.now):
            assert len(self.driver.claim(*claim.kinds)) == 1, "it was not to be served"
            served.append(claim.name)
        return served

    def expire(self, now_s: float) -> list[str]:
        return [claim.name for claim in self.parking.take_expired(now_s)]


def test_who_came_first_is_served_first_whatever_he_waits_for() -> None:
    garage = Garage()
    for name, kinds in [("a", ("mail",)), ("b", ()), ("c", ("index", "mail")), ("d", ("mail",))]:
        garage.park(name, *kinds)
    garage.driver.push_many("1", "2", "3", kind="mail")
    assert garage.serve() == ["a", "b", "c"]
    garage.driver.push("4", "mail")
    assert garage.serve() == ["d"]
    assert len(garage.parking) == 0


def test_nobody_is_served_with_a_kind_that_he_does_not_want() -> None:
    garage = Garage()
    garage.park("a", "mail")
    garage.park("b", "index")
    garage.driver.push_many("1", "2", kind="index")
    assert garage.serve() == ["b"]
    assert [claim.name for claim in garage.parking] == ["a"]


def test_a_claim_that_no_job_fits_does_not_hold_up_those_behind_it() -> None:
    garage = Garage()
    for number in range(50):
        garage.park(f"never-{number}", f"kind-{number}")
    garage.park("any")
    garage.driver.push("1", "mail")
    assert garage.serve() == ["any"]
    assert len(garage.parking) == 50


def test_a_paused_kind_serves_nobody_until_it_is_resumed() -> None:
    garage = Garage()
    garage.park("mail", "mail")
    garage.park("any")
    garage.driver.push("1", "mail")
    garage.driver.ok(Pause(kind="mail"))
    assert garage.serve() == []
    garage.driver.push("2", "index")
    assert garage.serve() == ["any"]
    garage.driver.ok(Resume(kind="mail"))
    assert garage.serve() == ["mail"]


def test_a_paused_queue_serves_nobody() -> None:
    garage = Garage()
    garage.park("any")
    garage.driver.push("1")
    garage.driver.ok(Pause())
    assert garage.serve() == []
    garage.driver.ok(Resume())
    assert garage.serve() == ["any"]


def test_a_delayed_job_serves_somebody_when_it_is_due() -> None:
    garage = Garage()
    garage.park("any")
    garage.driver.push("1", delay_s=5)
    assert garage.serve() == []
    garage.driver.wait(5)
    assert garage.serve() == ["any"]


def test_claims_expire_in_the_order_of_their_ends_and_each_once() -> None:
    garage = Garage()
    garage.park("late", until=30)
    garage.park("soon", until=10)
    garage.park("then", until=20)
    assert garage.parking.next_expiry() == 10
    assert garage.expire(9.9) == []
    assert garage.expire(20) == ["soon", "then"]
    assert garage.parking.next_expiry() == 30
    assert [claim.name for claim in garage.parking] == ["late"]


def test_a_claim_that_was_served_or_withdrawn_does_not_expire() -> None:
    garage = Garage()
    withdrawn = garage.park("withdrawn", until=10)
    garage.park("served", until=10)
    assert garage.parking.discard(withdrawn)
    assert not garage.parking.discard(withdrawn)
    garage.driver.push("1")
    assert garage.serve() == ["served"]
    assert garage.parking.next_expiry() is None
    assert garage.expire(100) == []


def test_a_claim_is_withdrawn_with_its_copies_and_leaves_the_others() -> None:
    garage = Garage()
    for kind in ("mail", "index", "mail"):
        garage.park("withdrawn", kind)
    garage.park("other", "mail")
    assert {claim.name for claim in garage.parking.withdraw("withdrawn")} == {"withdrawn"}
    assert garage.parking.withdraw("withdrawn") == []
    assert [claim.name for claim in garage.parking] == ["other"]
    garage.driver.push("1", "mail")
    assert garage.serve() == ["other"]


def test_a_claim_that_is_parked_again_stands_behind_all_others_and_expires_once() -> None:
    garage = Garage()
    again = garage.park("again", until=10)
    garage.park("other", until=50)
    garage.parking.discard(again)
    again.until = 60
    garage.parking.add(again)
    garage.driver.push("1")
    assert garage.serve() == ["other"]
    assert garage.expire(50) == []
    assert garage.expire(60) == ["again"]


def test_claims_that_come_and_go_leave_nothing_behind() -> None:
    garage = Garage()
    stays = garage.park("stays")
    for number in range(10_000):
        garage.parking.discard(garage.park(str(number), f"kind-{number}"))
    assert list(garage.parking) == [stays]
    assert len(garage.parking._lines) == 1
    assert len(garage.parking._timers) < 100


def test_a_crowd_of_the_same_kind_costs_no_more_than_one_to_look_through() -> None:
    garage = Garage()
    for number in range(20_000):
        garage.park(str(number), "mail")
    looked_at = 0
    head_of = garage.driver.state.head_of

    def counting(*args: object) -> object:
        nonlocal looked_at
        looked_at += 1
        return head_of(*args)  # type: ignore[arg-type]

    garage.driver.state.head_of = counting  # type: ignore[method-assign, assignment]
    assert garage.parking.next_servable(garage.driver.state, garage.driver.now) is None
    assert looked_at == 1

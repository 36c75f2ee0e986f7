"""Long walks through the model: what the machine checks, with more jobs and a longer past.

The machine finds short histories and shrinks them. Dead jobs that were redriven, keys that
came again, sessions forgotten and met again need hundreds of requests first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from bucketq.model.operations import Configure
from bucketq.model.records import STATUSES, Backoff
from tests.unit.model.job_strategies import KINDS
from tests.unit.model.link_rules import BATCHES
from tests.unit.model.test_machine import PROGRESS, QueueMachine

STEPS = 300


class Walker:
    """Draws the arguments of the machine's rules, the common ones more often."""

    def __init__(self, seed: int) -> None:
        """Begin a walk that the seed determines."""
        self.random = random.Random(seed)
        self.machine = QueueMachine()
        changes = {"max_attempts": 3, "max_errors": 2, "max_jobs": 1000, "backoff": Backoff(2.0)}
        changes["max_format"] = 2
        self.machine.send(Configure(changes=changes))
        self.steps: dict[Callable[[], None], int] = {
            self.push: 20,
            self.claim: 24,
            self.work: 30,
            self.operate: 12,
            self.batch: 16,
            self.link: 8,
            self.house: 16,
            self.broker: 8,
            self.repeat: 12,
            self.time: 12,
        }

    def go(self) -> None:
        """Take one step, and look at everything."""
        (step,) = self.random.choices(list(self.steps), list(self.steps.values()))
        step()
        self.machine.rows_are_those_of_the_reference()
        self.machine.indexes_agree_with_a_recount()
        self.machine.bulk_rows_are_those_of_the_reference()

    @property
    def number(self) -> int:
        return self.random.randrange(100)

    @property
    def by(self) -> tuple[str, int]:
        return self.random.choice(["", "x", "x", "y", "z"]), self.random.randrange(12)

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.random.choice([(), (), (), ("a",), ("b", "c")])

    def new_job(self) -> dict[str, Any]:
        payload = Raw(self.random.choice([b"1", b'{"n":2}']))
        job: dict[str, Any] = {"kind": self.random.choice(KINDS), "payload": payload}
        options = {
            "priority": self.random.choice([-1, 1]),
            "delay_s": self.random.choice([0.5, 5.0, 60.0]),
            "key": f"k{self.random.randrange(20)}",
            "max_attempts": self.random.randint(1, 3),
            "backoff": self.random.choice([Backoff(0.0), Backoff(4.0, 3.0, 10.0)]),
            "unique": f"u{self.random.randrange(4)}",
            "expires_in_s": self.random.choice([70.0, 120.0]),
            "group": self.random.choice(["g1", "g1", "g2", "g3"]),
            "batch_id": self.random.choice([*self.machine.reference.batches, "never"]),
            "after": [self.number for _ in range(self.random.randint(1, 3))],
            "on_failed": "run",
        }
        return job | {name: value for name, value in options.items() if self.number < 15}

    def push(self) -> None:
        jobs = [self.new_job() for _ in range(self.random.randint(1, 3))]
        self.machine.push(jobs, self.number, self.by)

    def follow_ups(self) -> list[dict[str, Any]] | None:
        return [self.new_job() for _ in range(self.random.randrange(3))] or None

    def claim(self) -> None:
        limit = self.random.randint(1, 4)
        self.machine.claim(self.kinds, limit, self.by, self.random.choice("vw"))

    def work(self) -> None:
        machine, number, by = self.machine, self.number, self.by
        choice = self.random.randrange(11)
        if choice < 3:
            machine.fail(number, by, retry=self.number < 70)
        elif choice < 4:
            machine.complete(number, by, Raw(b"[1]"), self.follow_ups())
        elif choice < 5:
            numbers = [self.number for _ in range(self.random.randrange(4))]
            machine.complete_many(numbers, by, self.follow_ups())
        elif choice < 6:
            machine.release(number, by, self.random.choice([0.0, 3.0]))
        elif choice < 7:
            numbers = [self.number for _ in range(self.random.randrange(4))]
            machine.release_many(numbers, by, self.random.choice([0.0, 3.0]))
        elif choice < 9 and machine.state.running:
            machine.expire(number, older=int(self.number < 10))
        else:
            numbers = [self.number for _ in range(self.random.randrange(4))]
            machine.heartbeat(numbers, self.random.choice([None, PROGRESS]))

    def operate(self) -> None:
        machine, choice = self.machine, self.random.randrange(11)
        if choice >= 10:
            machine.revoke_token(self.number, self.by)
        elif choice >= 8:
            machine.grant_token(self.number, int(self.number < 20), self.by)
        elif choice < 3:
            machine.redrive(self.kinds, self.random.randrange(3), self.number, self.by)
        elif choice < 4 and self.number < 50:
            target = self.random.choice(["kind=a", "kind=b", "group=g1", "group=*"])
            running, rate = self.random.choice([(None, None), (2, None), (None, 5), (1, 2)])
            machine.limit(target, running, rate, self.random.choice([10.0, 100.0]), self.by)
        elif choice < 4:
            machine.purge(self.kinds, self.random.choice([0.0, 5.0]), self.number, self.by)
        elif choice < 6:
            machine.cancel(self.number, self.by)
        else:
            kind = self.random.choice([None, "a", "b"])
            machine.pause_or_resume(kind, self.number < 30, self.by)

    def link(self) -> None:
        machine, choice, name = self.machine, self.random.randrange(10), self.random.choice(BATCHES)
        if choice < 6 or not machine.state.batches:
            machine.open_batch(name, self.number < 80, ("", 0))
        elif choice < 8:
            machine.close_batch_of_jobs(name, ("y", 2))
        elif choice < 9:
            machine.cancel_jobs(name, self.number % 3 + 1, ("y", 2))
        else:
            machine.cancel_batch(name, ("y", 2))

    def batch(self) -> None:
        machine, choice, draw = self.machine, self.random.randrange(10), self.random.choice
        name, lag = draw(["spark", "spark", "flink", "never"]), draw([0] * 8 + [1, -1])
        if choice < 1:
            machine.open_consumer(name, self.by)
        elif choice == 9:
            machine.publish(name, self.number % 5, self.number % 3, self.number, self.by)
        elif not machine.state.consumers:
            machine.open_consumer("spark", self.by)
        elif choice < 5:
            limit, lease_s = self.random.randint(1, 4), draw([None, 60.0])
            ahead, acks = draw([0] * 8 + [1, -1]), self.number % 2 == 0
            machine.claim_batch(name, lag, ahead, limit, self.kinds, lease_s, acks=acks)
        elif choice < 7:
            machine.close_batch(name, lag, draw([0] * 8 + [1, -1]), self.number < 30, self.by)
        elif choice < 8:
            machine.read_batch(name, self.number % 4, 1 + self.number % 3)
        else:
            machine.remove_consumer(name, self.number, self.by)

    def house(self) -> None:
        machine, choice = self.machine, self.random.randrange(5)
        if choice == 0:
            if self.number % 2:
                machine.note_time()
            machine.tidy()
        elif choice == 4:
            machine.archive(self.number)
        elif choice == 1:
            machine.commit(reload=self.number < 50)
        elif choice == 2:
            machine.read(self.number, self.kinds, self.random.choice(STATUSES))
        else:
            options = {
                "max_attempts": self.random.choice([1, 3, 3, 6]),
                "max_dead": self.random.randrange(1, 8),
                "max_sessions": self.random.randrange(1, 5),
                "max_keys": self.random.choice([3, 100]),
                "max_tokens": self.random.choice([2, 100]),
                "require_token": self.number < 50,
                "max_consumers": self.random.choice([1, 100]),
                "max_writers": self.random.choice([2, 100]),
                "max_batches": self.random.choice([1, 100]),
                "batch_retention_s": self.random.choice([50.0, 1000.0]),
                "max_held": self.random.choice([2, 100]),
                "consumer_retention_s": self.random.choice([50.0, 1000.0]),
                "writer_retention_s": self.random.choice([50.0, 1000.0]),
                "max_jobs": self.random.choice([20, 1000, 1000]),
                "key_retention_s": self.random.choice([20.0, 200.0]),
                "dead_retention_s": self.random.choice([50.0, 1000.0]),
                "session_retention_s": self.random.choice([50.0, 1000.0]),
            }
            name = self.random.choice(list(options))
            machine.configure({name: options[name]}, self.by)

    def broker(self) -> None:
        machine, choice = self.machine, self.random.randrange(4)
        if choice < 2:
            numbers = [self.number for _ in range(self.random.randrange(4))]
            machine.persist(numbers, self.random.choice([0.0, 0.5, 20.0]))
        elif choice < 3:
            machine.lead(self.random.choice("pq"), self.random.choice([0, 0, 1, -1]))
        else:
            machine.retire(self.random.choice("pq"), self.random.choice([0, 0, 1]))

    def repeat(self) -> None:
        if self.machine.sent:
            self.machine.send_again(self.random.choice([0, 0, 1, 2, self.number]))

    def time(self) -> None:
        seconds = self.random.choice([0.25, 1, 5, 30, 100, 300, -1, -20])
        self.machine.pass_time_or_set_the_clock_back(seconds)


@pytest.mark.parametrize("seed", range(8))
def test_a_long_walk_agrees_with_the_reference(seed: int) -> None:
    walker = Walker(seed)
    for _ in range(STEPS):
        walker.go()

"""Waits for jobs at a broker: one message for each answer, and brokers that stop meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.broker.broker_connection import BrokerConnection
from bucketq.queue.push_options import JobSpec
from bucketq.rpc.messages import Answers
from tests.unit.broker.land import until
from tests.unit.client.clients import Realm
from tests.unit.commit.worlds import settle, start, virtual


@pytest.mark.parametrize("end", ["killed", "frozen", "retired"])
def test_a_wait_survives_its_broker(end: str) -> None:
    @virtual
    async def check() -> None:
        realm = Realm()
        first = realm.spawn("host1")
        await realm.until_led_by("host1")
        async with realm.serving("host2", healthy=True), realm.client() as queue:
            job_id = await queue.push("mail", 1)
            waiting = start(queue.wait(job_id, timeout_s=120))
            await asyncio.sleep(4)
            if end == "killed":
                first.kill()
            elif end == "frozen":
                first.freeze()
            else:
                await realm.brokers["host1"].retire()
            await realm.until_led_by("host2")
            async with realm.client("worker") as worker:
                (job,) = await worker.claim(wait_s=60)
                assert not waiting.done()
                await worker.complete(job, "sent")
            assert await waiting == "sent"

    check()


@virtual
async def test_a_job_that_ends_while_there_is_no_broker_ends_a_wait() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.client() as queue:
        job_id = await queue.push("mail", 1)
        waiting = start(queue.wait(job_id, timeout_s=120))
        await asyncio.sleep(4)
        first.kill()
        async with realm.rival() as rival:
            (job,) = await rival.claim()
            await rival.complete(job, "sent")
        async with realm.serving("host2", healthy=True):
            assert await waiting == "sent"


@virtual
async def test_thousands_of_waiters_are_sent_one_answer_each_and_signs_of_life() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.configure(archive_after_s=3600)
        ids = await queue.push_many(JobSpec(kind="a", payload=n) for n in range(4000))
        waits = [start(queue.wait(job_id, timeout_s=50)) for job_id in ids]
        await until(lambda: _waits(realm) == 4000)
        sent: list[Answers] = []
        for connection in realm.brokers["host1"]._connections.values():
            _record(connection, sent)
        realm.store.calls.clear()
        await asyncio.sleep(30)
        assert len(sent) <= 11, "signs of life, every three seconds, for all of them"
        assert len(realm.store.calls) <= 32
        sent.clear()
        jobs = await queue.claim(limit=1000)
        await queue.complete_many((job, job.payload) for job in jobs)
        await settle()
        assert [wait.result() for wait in waits if wait.done()] == list(range(1000))
        assert sum(len(message.answers) for message in sent) == 1000 + 2
        assert len(sent) <= 6
        assert _waits(realm) == 3000
    await asyncio.gather(*waits, return_exceptions=True)


@virtual
async def test_a_broker_forgets_the_waits_of_a_client_that_is_gone() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        async with realm.client() as queue:
            waiting = start(queue.wait(await queue.push("mail", 1), timeout_s=3000))
            await until(lambda: _waits(realm) == 1)
            waiting.cancel()
        await until(lambda: _waits(realm) == 0, 1.0)


def _waits(realm: Realm) -> int:
    leader = realm.brokers["host1"].leader
    return 0 if leader is None else leader.waits


def _record(connection: BrokerConnection, sent: list[Answers]) -> None:
    send: Any = connection._send

    def record(answers: Answers) -> None:
        sent.append(answers)
        send(answers)

    connection._send = record

"""Clients of a broker that is older than they are."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from bucketq.errors import InvalidRequestError, LeaseLostError, UnavailableError
from bucketq.model.numbered_batches import BatchState
from bucketq.model.operations import ReleaseMany
from bucketq.queue.push_options import JobSpec
from bucketq.rpc.messages import OFFERED, Welcome
from tests.unit.client.clients import Realm
from tests.unit.commit.worlds import say_nothing, slowly, virtual


@pytest.fixture(autouse=True)
def older_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers know nothing that was added after the first ones."""
    known = frozenset(OFFERED) - {ReleaseMany}
    monkeypatch.setattr("bucketq.broker.broker._OFFERED", known)
    monkeypatch.setattr("bucketq.broker.broker.Welcome", partial(Welcome, operations=()))


@virtual
async def test_an_older_broker_is_sent_a_release_for_each_job() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(30)])
        jobs = await queue.claim(limit=30)
        await queue.release(jobs[1])
        before = (await queue.stats()).version
        assert await queue.release_many(jobs) == [True, False] + [True] * 28
        stats = await queue.stats()
        assert stats.counts == {"mail": {"queued": 30}}
        assert stats.version <= before + 2, "what comes together is committed together"


@virtual
async def test_an_older_broker_is_asked_to_acknowledge_before_it_is_asked_for_the_next_batch() -> (
    None
):
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(5)])
        await queue.open_consumer("spark")
        await queue.claim_batch("spark", 1, 1, limit=2)
        page = await queue.read_batch("spark", 1)
        await queue.complete(page.jobs[0])
        state = await queue.claim_batch("spark", 1, 2, limit=2, acked=1)
        assert state == BatchState(2, 2, (), 1, (page.jobs[0].id,))
        assert await queue.claim_batch("spark", 1, 2, limit=2, acked=1) == BatchState(2, 2)
        assert (await queue.stats()).counts == {"mail": {"done": 2, "running": 2, "queued": 1}}


@virtual
async def test_an_older_broker_prepares_no_batch_and_it_is_claimed_when_its_turn_comes() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(4)])
        await queue.open_consumer("spark")
        await queue.claim_batch("spark", 1, 1, limit=2)
        assert await queue.prepare_batch("spark", 1, 2, limit=2) == BatchState(2, 0)
        assert (await queue.stats()).counts == {"mail": {"running": 2, "queued": 2}}
        state = await queue.claim_batch("spark", 1, 2, limit=2, acked=1)
        assert state == BatchState(2, 2, (), 2)


@pytest.mark.parametrize("lands", [True, False])
@virtual
async def test_releases_of_unknown_outcome_are_retried_with_the_effect_of_one(lands: bool) -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client(timeout_s=5.0) as queue:
        await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(3)])
        jobs = await queue.claim(limit=3)
        await queue.release(jobs[1])
        realm.store.plan("replace", slowly(8) if lands else say_nothing)
        with pytest.raises(UnavailableError) as unknown:
            await queue.release_many(jobs)
        request = unknown.value.request
        assert request is not None
        with pytest.raises(InvalidRequestError, match="releasemany"):
            await queue.release(jobs[0], request=request)
        if lands:
            await asyncio.sleep(10)
            held = await queue.claim(limit=3)
            assert len(held) == 3
        else:
            held = []
        tokens: set[str | None] = {request}
        async with asyncio.timeout(60):
            while True:
                try:
                    answers = await queue.release_many(jobs, request=request)
                    break
                except UnavailableError as error:
                    tokens.add(error.request)
        assert answers == [True, False, True]
        assert tokens == {request}, "it can be retried for as long as it takes"
        if held:
            assert [pulse.held for pulse in await queue.heartbeat(held)] == [True] * 3
        else:
            assert (await queue.stats()).counts == {"mail": {"queued": 3}}


@virtual
async def test_a_broker_that_was_upgraded_meanwhile_takes_the_same_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    realm = Realm()
    async with realm.serving("host1"):
        async with realm.client(timeout_s=5.0) as queue:
            await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(2)])
            jobs = await queue.claim(limit=2)
            realm.store.plan("replace", slowly(8))
            with pytest.raises(UnavailableError) as unknown:
                await queue.release_many(jobs)
            await asyncio.sleep(10)
            (held,) = await queue.claim(limit=1)
        monkeypatch.undo()
        async with realm.client() as queue:
            # That they were released is known, but no longer by which request.
            answers = await queue.release_many(jobs, request=unknown.value.request)
            assert answers == [False, False]
            assert [pulse.held for pulse in await queue.heartbeat(held)] == [True]


@virtual
async def test_an_older_broker_is_not_sent_options_that_it_ignores() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.push("mail", 1)
        with pytest.raises(InvalidRequestError, match="does not know unique jobs: upgrade it"):
            await queue.push("mail", 2, unique="ada")
        with pytest.raises(InvalidRequestError, match="does not know jobs that expire: upgrade it"):
            await queue.push("mail", 2, expires_in_s=5)
        with pytest.raises(InvalidRequestError, match="does not know groups of jobs: upgrade it"):
            await queue.push("mail", 2, group="acme")
        with pytest.raises(InvalidRequestError, match="does not know batches: upgrade it"):
            await queue.push("mail", 2, batch_id="b1")
        with pytest.raises(InvalidRequestError, match="wait for others: upgrade it"):
            await queue.push("mail", 2, after="j1")
        with pytest.raises(InvalidRequestError, match="list the jobs of a batch: upgrade it"):
            await queue.jobs(batch_id="b1")
        assert (await queue.stats()).counts == {"mail": {"queued": 1}}


@virtual
async def test_an_older_broker_is_sent_a_release_instead_of_a_snooze() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        job_id = await queue.push("mail", 0)
        (job,) = await queue.claim()
        assert await queue.snooze(job, 60) == "queued"
        assert await queue.claim() == []
        await asyncio.sleep(60)
        (job,) = await queue.claim()
        assert (job.id, job.attempt, job.failures, job.snoozes) == (job_id, 2, 0, 0)
        await queue.release(job)
        with pytest.raises(LeaseLostError):
            await queue.snooze(job, 60)


@virtual
async def test_an_older_broker_is_not_sent_a_completion_that_pushes_jobs() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.push("mail", 0)
        (job,) = await queue.claim()
        with pytest.raises(InvalidRequestError, match="cannot push jobs with a completion"):
            await queue.complete(job, push=[JobSpec(kind="next", payload=1)])
        assert (await queue.get(job.id)).status == "running"
        await queue.complete(job)

"""Clients of a queue that expect to be killed: they write down what they were promised.

Those who push and those who claim by hand tell their diary first what they intend, then what became
of it. A worker's handlers tell it what they do, and its log how each attempt ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import bucketq
from bucketq import Job, JobSpec, Queue
from bucketq.broker import server  # noqa: F401 - loaded late otherwise, by each client
from bucketq.errors import (
    KeyConflictError,
    LeaseLostError,
    PayloadTooLargeError,
    UnavailableError,
)
from bucketq.rpc.grpc import grpc_client  # noqa: F401 - the same; it is used after the fork only
from bucketq.store import cloud, local  # noqa: F401 - the same
from tests.chaos import handlers
from tests.chaos.casts import LARGEST_PAYLOAD_BYTES
from tests.chaos.diary import Diary

A = TypeVar("A")

_BEAT_S = 0.4
_NAP_S = 4.5


class _Log(logging.Handler):
    """Writes into the diary what a worker or a broker inside this process says."""

    def __init__(self, diary: Diary) -> None:
        super().__init__()
        self._diary = diary

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record, "bucketq", {})
        self._diary.note("log", text=record.getMessage(), **facts)


class GaveUpError(Exception):
    """The outcome stayed unknown."""


class Client:
    """One process that uses a queue until it is told to stop, or ended without being told."""

    def __init__(self, diary: Diary, wish: dict[str, Any]) -> None:
        self.diary = diary
        self.chance = random.Random(wish["seed"])
        self.wish = wish
        self.stopped = asyncio.Event()
        self.queue: Queue[Any]
        self._number = 0

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopped.set)
        wish = self.wish
        connection = bucketq.connect(
            wish["url"],
            mode=wish["mode"],
            launch=wish["launch"],
            worker=self.diary.name,
            timeout_s=wish["timeout_s"],
            create=False,
        )
        async with connection as self.queue:
            turn = getattr(self, wish["role"])
            while not self.stopped.is_set():
                await turn()
                await self._pause(wish["pause_s"] * 2 * self.chance.random())

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self.stopped.wait()

    async def _certainly(self, act: Callable[[str | None], Awaitable[A]]) -> A:
        """Do something; while its outcome is unknown, ask again under the same name."""
        request = None
        for _ in range(self.chance.choice((1, 3, 6, 6))):
            try:
                return await act(request)
            except UnavailableError as error:
                if error.request is None:
                    raise
                request = error.request
        raise GaveUpError

    def _tokens(self, count: int) -> list[str]:
        first, self._number = self._number, self._number + count
        return [f"{self.diary.name}-{number}" for number in range(first, self._number)]

    def _spec(self, token: str, key: str | None = None) -> JobSpec[str]:
        """A job of some kind: what plain clients claim, or what workers have handlers for."""
        if self.wish["kinds"] == "plain":
            return JobSpec(kind="mail", payload=token, key=key)
        shares = [kind.share for kind in handlers.KINDS.values()]
        (name,) = self.chance.choices(list(handlers.KINDS), shares)
        kind = handlers.KINDS[name]
        limit = kind.limit if kind.is_job_limit else None
        return JobSpec(kind=name, payload=token, key=key, max_attempts=limit)

    async def produce(self) -> None:
        """Push: one, several, or what must be refused."""
        dice = self.chance.random()
        if dice < 0.04:
            await self._push_under_a_key_twice()
        elif dice < 0.1:
            small, large = self._tokens(2)
            jobs = [
                self._spec(small),
                self._spec(large + LARGEST_PAYLOAD_BYTES * "."),
            ]
            await self._push([small, large], jobs, PayloadTooLargeError)
        elif dice < 0.6:
            await self.push_one()
        else:
            tokens = self._tokens(self.chance.randint(2, 12))
            await self._push(tokens, [self._spec(token) for token in tokens])

    async def push_one(self) -> None:
        """Push one job."""
        (token,) = self._tokens(1)
        self.diary.note("intends", tokens=[token])
        began = time.monotonic()
        spec = self._spec(token)
        try:
            job_id = await self._certainly(
                lambda request: self.queue.push(
                    spec.kind, token, max_attempts=spec.max_attempts, request=request
                )
            )
        except GaveUpError:
            self.diary.note("unknown", tokens=[token])
        else:
            self.diary.note("pushed", began=began, jobs=[[job_id, token]])

    async def _push_under_a_key_twice(self) -> None:
        """The second time with other content, which is refused whatever became of the first."""
        first, second = self._tokens(2)
        if await self._push([first], [self._spec(first, key=first)]):
            await self._push([second], [self._spec(second, key=first)], KeyConflictError)

    async def _push(
        self,
        tokens: list[str],
        jobs: list[JobSpec[Any]],
        refusal: type[Exception] | None = None,
    ) -> bool:
        self.diary.note("intends", tokens=tokens)
        began = time.monotonic()
        try:
            ids = await self._certainly(lambda request: self.queue.push_many(jobs, request=request))
        except GaveUpError:
            self.diary.note("unknown", tokens=tokens)
            return False
        except (KeyConflictError, PayloadTooLargeError) as error:
            if refusal is None or not isinstance(error, refusal):
                raise
            self.diary.note("refused", tokens=tokens)
            return False
        assert refusal is None, f"{tokens} should have been refused"
        self.diary.note("pushed", began=began, jobs=list(zip(ids, tokens, strict=True)))
        return True

    async def consume(self) -> None:
        """Claim some jobs, work on them for a while, and finish them in one way or another."""
        limit = self.chance.randint(1, 16)
        try:
            jobs = await self._certainly(
                lambda request: self.queue.claim(limit=limit, wait_s=1.0, request=request)
            )
        except GaveUpError:
            self.diary.note("unknown", tokens=[])
            return
        if not jobs:
            return
        for job in jobs:
            self.diary.note("claimed", job=job.id, attempt=job.attempt)
        dice = self.chance.random()
        if dice < 0.04:
            # Nobody hears of it for longer than a lease, and then it is as if nothing had been.
            await self._pause(_NAP_S)
        beating = asyncio.create_task(self._beat(jobs))
        try:
            await self._pause(3 * _BEAT_S if dice > 0.85 else 0.05 * dice)
            await self._finish(jobs)
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    async def _beat(self, jobs: list[Job[Any]]) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            with suppress(UnavailableError):
                for pulse in await self.queue.heartbeat(jobs):
                    if not pulse.held:
                        held = next(job for job in jobs if job.id == pulse.job)
                        self.diary.note("told_lost", job=held.id, attempt=held.attempt)

    async def _finish(self, jobs: list[Job[Any]]) -> None:
        alone, jobs = jobs[:2], jobs[2:]
        for job in alone:
            if self.chance.random() < 0.1:
                await self._give_back(job)
            else:
                await self._complete(job)
        if not jobs:
            return
        pairs = [(job, self._result(job)) for job in jobs]
        began = time.monotonic()
        try:
            answers = await self._certainly(
                lambda request: self.queue.complete_many(pairs, request=request)
            )
        except GaveUpError:
            for job in jobs:
                self._completion("completion_unknown", job, began)
            return
        for job, is_done in zip(jobs, answers, strict=True):
            self._completion("completed" if is_done else "completion_refused", job, began)

    async def _complete(self, job: Job[Any]) -> None:
        began = time.monotonic()
        try:
            await self._certainly(
                lambda request: self.queue.complete(job, self._result(job), request=request)
            )
        except GaveUpError:
            self._completion("completion_unknown", job, began)
        except LeaseLostError:
            self._completion("completion_refused", job, began)
        else:
            self._completion("completed", job, began)

    async def _give_back(self, job: Job[Any]) -> None:
        """Let another attempt have it; what this one would say after that counts for nothing."""
        try:
            if self.chance.random() < 0.5:
                await self._certainly(lambda request: self.queue.release(job, request=request))
            else:
                await self._certainly(
                    lambda request: self.queue.fail(job, "not now", request=request)
                )
        except (GaveUpError, LeaseLostError):
            return
        self.diary.note("given_back", job=job.id, attempt=job.attempt)
        await self._complete(job)

    def _completion(self, what: str, job: Job[Any], began: float) -> None:
        facts = {"job": job.id, "attempt": job.attempt, "result": self._result(job)}
        self.diary.note(what, began=began, **facts)

    def _result(self, job: Job[Any]) -> str:
        return f"{self.diary.name}/{job.id}/{job.attempt}"


def run(wish: dict[str, Any]) -> None:
    """Live one life of one process, until it is told to end."""
    diary = Diary(Path(wish["diary"]))
    with Path(wish["complaints"]).open("ab") as complaints:
        os.dup2(complaints.fileno(), 2)
    log = logging.getLogger("bucketq")
    log.addHandler(_Log(diary))
    log.setLevel(logging.INFO)
    try:
        if wish["role"] == "work":
            work(diary, wish)
        else:
            asyncio.run(_live(diary, wish))
    except BaseException:
        diary.note("crashed", why=traceback.format_exc())
        raise


async def _live(diary: Diary, wish: dict[str, Any]) -> None:
    client = Client(diary, wish)
    while not client.stopped.is_set():
        try:
            await client.run()
        except UnavailableError as error:
            diary.note("not_connected", why=str(error))


def work(diary: Diary, wish: dict[str, Any]) -> None:
    """Be a worker, as a user writes one: where it finds no queue it ends, and is started again."""
    os.environ[handlers.DIARY_VARIABLE] = wish["diary"]
    worker = bucketq.Worker(
        wish["url"],
        concurrency=wish["concurrency"],
        drain_s=wish["drain_s"],
        mode=wish["mode"],
        launch=wish["launch"],
        worker=diary.name,
        timeout_s=wish["timeout_s"],
        create=False,
    )
    handlers.register(worker, with_processes=wish["with_processes"])
    try:
        worker.run_sync()
    except UnavailableError as error:
        diary.note("not_connected", why=str(error))

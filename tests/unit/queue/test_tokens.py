"""How tokens are made, and that nothing of them is ever written to a log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import UnavailableError
from bucketq.clock import SystemClock
from bucketq.commit.request_ids import token_of
from bucketq.model import operations as ops
from bucketq.model.tokens import parse_token, token_digest
from bucketq.queue.queue import Queue


class Lossy:
    """A committer of which every first answer is lost."""

    where, mode, version, is_open = "nowhere", "lossy", 0, True

    def __init__(self) -> None:
        self.sent: list[ops.GrantToken] = []

    async def open(self) -> None:
        return

    joins = False

    async def close(self) -> None:
        return

    async def flush_archive(self) -> int:
        return 0

    async def submit(self, request: ops.Request, timeout_s: float) -> Any:
        assert isinstance(request.operation, ops.GrantToken)
        self.sent.append(request.operation)
        if len(self.sent) % 2:
            raise UnavailableError("lost", request=token_of(request, 0))


async def retried(queue: Queue[Any]) -> str:
    with pytest.raises(UnavailableError) as lost:
        await queue.create_token("ci", "push")
    return await queue.create_token("ci", "push", request=lost.value.request)


async def test_a_retry_makes_the_same_token_and_every_other_call_another() -> None:
    lossy = Lossy()
    async with Queue[Any](lossy, SystemClock()) as queue:
        tokens = [await retried(queue) for _ in range(3)]
    assert len(set(tokens)) == 3
    assert [grant.digest for grant in lossy.sent] == [
        token_digest(token) for token in tokens for _ in range(2)
    ]
    assert [grant.id for grant in lossy.sent] == [
        parse_token(token) for token in tokens for _ in range(2)
    ]


async def test_a_token_cannot_be_derived_from_the_id_of_its_request() -> None:
    clock, lossy, other_lossy = SystemClock(), Lossy(), Lossy()
    async with Queue[Any](lossy, clock) as one, Queue[Any](other_lossy, clock) as other:
        with pytest.raises(UnavailableError) as lost:
            await one.create_token("ci", "push")
        other_lossy.sent.append(lossy.sent[0])
        request = lost.value.request
        mine = await one.create_token("ci", "push", request=request)
        assert await other.create_token("ci", "push", request=request) != mine


@pytest.mark.parametrize("mode", ["direct", "embedded", "auto"])
async def test_neither_a_token_nor_its_digest_is_written_to_a_log(
    mode: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = (tmp_path / "queue.json").as_uri()
    async with bucketq.connect(url, mode="direct") as direct:
        tokens = [await direct.create_token("old", "admin")]
        await direct.configure(require_token=False)
    async with bucketq.connect(url, mode=mode) as queue:
        tokens.append(await queue.create_token("ci", "push", ttl_s=60))
        with pytest.raises(bucketq.InvalidRequestError):
            await queue.revoke_token(tokens[1])
        await queue.revoke_token(parse_token(tokens[1]))
        shown = repr((queue, await queue.tokens(), await queue.snapshot(), await queue.stats()))
    told = "\n".join(f"{record.getMessage()} {record.args!r}" for record in caplog.records)
    for token in tokens:
        for secret in (token.rpartition("_")[2], token_digest(token)):
            assert secret not in told
            assert secret not in shown

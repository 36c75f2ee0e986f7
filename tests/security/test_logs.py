"""Logs never include payloads, results, errors of jobs or tokens."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

import grpc.aio
import pytest

import bucketq
from bucketq.model.tokens import token_digest
from bucketq.rpc.messages import Hello
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from tests.chaos.fleet import Fleet
from tests.security.conftest import granted, granted_by
from tests.security.strangers import NONCE, Stream, push_of, unary

MARK = "M4rk3r"
"""In whatever must not be seen: payloads, results, errors, keys, tags."""


async def misuse(address: str, token: str) -> None:
    """Say to a broker what is refused, each time with a mark."""
    channel = grpc.aio.insecure_channel(address)
    target = pb.Target(queue="jobs")
    bearer = ("authorization", f"Bearer {token}")
    attempts = [
        ("Push", pb.PushRequest(target=target, push=push_of(payload=MARK.encode())), bearer),
        ("Push", pb.PushRequest(target=target, push=push_of(payload=b'"' + MARK.encode())), bearer),
        ("Push", pb.PushRequest(target=target, push=push_of(payload=b'{"M4rk3r":NaN}')), bearer),
        ("Push", pb.PushRequest(target=target, push=push_of()), ("authorization", "Bearer M4rk3r")),
        (
            "Configure",
            pb.ConfigureRequest(target=target, configure=pb.Configure(changes=b'"M4rk3r"')),
            bearer,
        ),
    ]
    for verb, request, shown in attempts:
        with pytest.raises(grpc.aio.AioRpcError):
            await unary(channel, verb, request, shown)
    method: Any = channel.unary_unary("/bucketq.v1.Queue/Push", None, None)
    with pytest.raises(grpc.aio.AioRpcError):
        await method(b"\xff\xff" + MARK.encode(), timeout=10, metadata=(bearer,))
    for shown_token in (MARK, f"bq_0123abcd_{MARK}"):
        stream = Stream(channel)
        await stream.say(hello=pb.Hello(queue="jobs", token_id="0123abcd", nonce=NONCE))
        await stream.hear()
        await stream.say(token=shown_token, calls=[pb.Call(tag=1, push=push_of(payload=b"1"))])
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.hear()
    await channel.close(None)


async def use(place: str, token: str) -> None:
    """Do everything that a client can do, each time with a mark."""
    key = f"{MARK}-{place}"
    async with bucketq.connect(place, token=token, mode="remote") as queue:
        await queue.push("mail", {MARK: MARK}, key=key, tags={"tag": MARK})
        await queue.push("mail", MARK.encode())
        [first, second] = await queue.claim("mail", limit=2)
        await queue.fail(first, f"Traceback: {MARK}", retry=False)
        await queue.complete(second, {MARK: 1})
        with pytest.raises(bucketq.LeaseLostError):
            await queue.complete(first, MARK)
        with pytest.raises(bucketq.KeyConflictError):
            await queue.push("mail", f"other {MARK}", key=key)
        await queue.configure(max_payload_bytes=1_000_000)
        with pytest.raises(bucketq.PayloadTooLargeError):
            await queue.push("mail", MARK * 200_000)
        await queue.jobs()
        await queue.stats()
        await queue.flush_archive()


async def test_no_log_of_broker_or_client_holds_a_payload_or_a_token(
    processes: Fleet, url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    admin = granted(url, "admin")
    broker = processes.serve(f"jobs={url}", "--debug", GRPC_VERBOSITY="INFO")
    broker.wait_until_leading()
    broker.wait_until_serving()
    place = f"bucketq://{broker.address}/jobs"
    worker = await granted_by(admin, place, "push", "claim", "read")
    wrong = f"bq_{worker[3:11]}_" + "5e" * 32
    await use(place, admin)
    await use(url, admin)
    await misuse(broker.address, admin)
    for token in (wrong, worker):
        with pytest.raises(bucketq.AccessDeniedError):
            async with bucketq.connect(place, token=token) as queue:
                await queue.create_token("more", "admin")
    async with bucketq.connect(url, token=wrong) as queue:
        await queue.push("mail", MARK)
    await asyncio.sleep(0.5)
    broker.send(signal.SIGTERM)
    assert broker.wait() == 0
    said = capfd.readouterr()
    heard = broker.text() + caplog.text + said.out + said.err
    assert "leading in epoch 1" in heard
    secrets = [MARK, "5e" * 32, *(token[12:] for token in (admin, worker))]
    secrets += [token_digest(token) for token in (admin, worker, wrong)]
    found = [secret for secret in secrets if secret in heard]
    assert found == [], heard


def test_what_holds_a_token_does_not_show_it() -> None:
    token = "bq_0123abcd_" + "5e" * 32
    connection = bucketq.connect("bucketq://127.0.0.1:1/jobs", token=token)
    hello = Hello(token=token)
    shown = repr(connection) + repr(connection._arguments) + repr(hello) + str(vars(connection))
    assert "5e5e" not in shown
    assert "0123abcd" in shown

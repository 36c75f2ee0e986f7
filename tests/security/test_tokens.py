"""Tokens at a real broker: it admits no client without one, and each grants its rights only."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

import bucketq
from bucketq import AccessDeniedError
from bucketq.model.tokens import parse_token, token_digest
from bucketq.rpc.credentials import broker_proof
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from tests.security.conftest import Served, granted, granted_by
from tests.security.strangers import NONCE, Stream, push_of, unary

SOON_S = 60.0
"""Long before a client gives up, and long enough for a busy machine."""
WRONG = "bq_0123abcd_" + "5e" * 32
TARGET = pb.Target(queue="jobs")


@pytest.fixture
def broker(served: Served) -> Served:
    """A broker for this queue alone, in the process of others: no test here ends its process."""
    return served


def forged(token: str) -> str:
    """The right id with another secret."""
    return f"bq_{parse_token(token)}_" + "5e" * 32


async def refusal(url: str, token: str | None, **options: Any) -> str:
    """The error of a client that is not let in, which must come long before its time is over."""
    async with asyncio.timeout(SOON_S):
        with pytest.raises(AccessDeniedError) as caught:
            async with bucketq.connect(url, token=token, timeout_s=600, **options) as queue:
                await queue.stats()
    return str(caught.value)


async def greeted(channel: Any, token: str) -> Stream:
    """A stream on which a token was named and shown."""
    stream = Stream(channel)
    await stream.say(hello=pb.Hello(queue="jobs", token_id=parse_token(token), nonce=NONCE))
    await stream.hear()
    await stream.say(token=token)
    return stream


async def status(ending: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ending
    return caught.value.code().name, caught.value.details() or ""


@pytest.mark.parametrize("way", ["address", "object"])
async def test_a_client_with_a_token_is_served(
    url: str, admin: str, broker: Served, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url if way == "object" else f"bucketq://{broker.address}/jobs"
    async with bucketq.connect(place, token=admin, mode="remote") as queue:
        job = await queue.push("mail", 1)
    monkeypatch.setenv("BUCKETQ_TOKEN", admin)
    async with bucketq.connect(place, mode="remote") as queue:
        assert (await queue.get(job)).payload == 1
        await queue.flush_archive()


@pytest.mark.parametrize("way", ["address", "object"])
async def test_a_client_without_a_valid_token_is_rejected_at_once(
    url: str, admin: str, broker: Served, way: str
) -> None:
    place = url if way == "object" else f"bucketq://{broker.address}/jobs"
    assert "BUCKETQ_TOKEN" in await refusal(place, None, mode="remote")
    for token in (WRONG, forged(admin)):
        said = await refusal(place, token, mode="remote")
        assert "BUCKETQ_TOKEN" in said
        assert token[-64:] not in said


async def test_a_text_that_is_not_a_token_is_rejected_without_being_shown() -> None:
    for text in ("hunter2", "bq_x_y", WRONG + " ", WRONG.upper()):
        with pytest.raises(bucketq.InvalidRequestError) as caught:
            bucketq.connect("bucketq://127.0.0.1:1/jobs", token=text)
        assert text not in str(caught.value)


async def test_a_client_that_may_write_does_so_and_says_why_once(
    url: str, admin: str, broker: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(SOON_S), bucketq.connect(url) as queue:
        for number in range(3):
            await queue.push("mail", number)
        stats = await queue.stats()
        assert stats.broker is not None
        assert (stats.broker.address, stats.broker.epoch) == (broker.address, 1)
        await asyncio.sleep(2)  # It looks for the broker again meanwhile, and is turned away again.
    # Not what gRPC may still have to say of connections of other tests.
    [logged] = [record for record in caplog.records if record.name.startswith("bucketq")]
    assert logged.levelname == "WARNING"
    assert "writing directly" in logged.getMessage()
    assert "BUCKETQ_TOKEN" in logged.getMessage()
    del admin


async def test_clients_of_a_queue_that_begins_to_ask_for_tokens_write_directly_or_are_told(
    url: str, broker: Served
) -> None:
    async with (
        asyncio.timeout(60),
        bucketq.connect(url, launch="never") as free,
        bucketq.connect(f"bucketq://{broker.address}/jobs") as bound,
    ):
        await free.push("mail", 1)
        await bound.push("mail", 2)
        await bound.create_token("first", "admin")
        await free.push("mail", 3)
        with pytest.raises(AccessDeniedError, match="BUCKETQ_TOKEN"):
            await bound.push("mail", 4)
        assert len((await free.jobs()).jobs) == 3


async def test_each_right_allows_what_it_says_and_nothing_else(admin: str, broker: Served) -> None:
    place = f"bucketq://{broker.address}/jobs"
    push, claim, read = [
        await granted_by(admin, place, right) for right in ("push", "claim", "read")
    ]
    async with bucketq.connect(place, token=push) as pusher:
        job = await pusher.push("mail", {"to": "ada"})
        assert (await pusher.settings()).lease_s
        for verb in (pusher.stats(), pusher.claim(), pusher.get(job), pusher.cancel(job)):
            with pytest.raises(AccessDeniedError, match="lacks the right"):
                await verb
        with pytest.raises(AccessDeniedError, match="lacks the right"):
            await pusher.create_token("more", "admin")
        with pytest.raises(AccessDeniedError, match="lacks the right"):
            await pusher.configure(require_token=False)
        with pytest.raises(AccessDeniedError, match="lacks the right"):
            await pusher.flush_archive()
    async with bucketq.connect(place, token=claim) as worker:
        with pytest.raises(AccessDeniedError, match="lacks the right"):
            await worker.push("mail", 1)
        [mine] = await worker.claim()
        await worker.heartbeat([mine])
        await worker.complete(mine)
    async with bucketq.connect(place, token=read) as reader:
        assert (await reader.get(job)).status == "done"
        with pytest.raises(AccessDeniedError, match="lacks the right"):
            await reader.claim()
        with pytest.raises(AccessDeniedError, match="lacks the right"):
            await reader.tokens()
    async with bucketq.connect(place, token=admin) as operator:
        assert len(await operator.tokens()) == 4


async def test_a_revoked_token_stops_working_on_streams_that_are_open(
    admin: str, broker: Served
) -> None:
    place = f"bucketq://{broker.address}/jobs"
    token = await granted_by(admin, place, "push", "claim")
    async with (
        bucketq.connect(place, token=token) as client,
        bucketq.connect(place, token=admin) as operator,
    ):
        await client.push("mail", 1)
        await client.claim()
        waiting = asyncio.create_task(client.claim(wait_s=30))
        await asyncio.sleep(0.3)  # Until it is parked; what follows holds either way.
        assert await operator.revoke_token(parse_token(token))
        with pytest.raises(AccessDeniedError, match="revoked"):
            await client.push("mail", 2)
        job = await operator.push("mail", 3)
        with pytest.raises(AccessDeniedError, match="revoked"):
            await waiting
        assert (await operator.get(job)).status == "queued", "it was not handed out"


async def test_a_token_written_to_the_object_takes_effect_within_seconds_and_so_does_its_removal(
    url: str, admin: str, broker: Served
) -> None:
    place, token = f"bucketq://{broker.address}/jobs", granted(url, "push")
    async with asyncio.timeout(60):
        await until_let_in(place, token)
        async with bucketq.connect(place, token=token) as client:
            with bucketq.connect_sync(url, mode="direct") as writer:
                writer.revoke_token(parse_token(token))
            with pytest.raises(AccessDeniedError, match="revoked"):
                await push_for_ever(client)
    del admin


async def until_let_in(place: str, token: str) -> None:
    while True:
        try:
            async with bucketq.connect(place, token=token):
                return
        except AccessDeniedError:
            await asyncio.sleep(0.2)


async def push_for_ever(client: Any) -> None:
    while True:
        await client.push("mail", 2)
        await asyncio.sleep(0.1)


async def test_a_token_stops_working_when_it_expires(admin: str, broker: Served) -> None:
    place = f"bucketq://{broker.address}/jobs"
    token = await granted_by(admin, place, "push", ttl_s=2.5)
    async with asyncio.timeout(60), bucketq.connect(place, token=token) as client:
        with pytest.raises(AccessDeniedError, match="expired"):
            await push_for_ever(client)
    await refusal(place, token)


async def test_a_token_of_another_queue_opens_nothing(url: str, admin: str, broker: Served) -> None:
    elsewhere = url.replace("queue.json", "other.json")
    with bucketq.connect_sync(elsewhere, mode="direct") as other:
        token = other.create_token("other", "admin")
    await refusal(f"bucketq://{broker.address}/jobs", token)
    del admin


async def test_two_tokens_are_good_at_once_so_that_one_can_replace_the_other(
    admin: str, broker: Served
) -> None:
    place = f"bucketq://{broker.address}/jobs"
    async with bucketq.connect(place, token=await granted_by(admin, place, "push")) as client:
        new = await granted_by(admin, place, "push")
        await client.push("mail", 1)
        async with bucketq.connect(place, token=new) as next_one:
            await next_one.push("mail", 2)


async def test_a_session_without_a_token_is_refused_before_it_begins(
    admin: str, channel: Any
) -> None:
    stream = Stream(channel)
    await stream.say(hello=pb.Hello(queue="jobs"), calls=[pb.Call(tag=1, push=push_of())])
    code, details = await status(stream.hear())
    assert code == "UNAUTHENTICATED"
    assert "BUCKETQ_TOKEN" in details
    del admin


async def test_calls_before_the_token_are_refused_and_change_nothing(
    url: str, admin: str, channel: Any
) -> None:
    stream = Stream(channel)
    hello = pb.Hello(queue="jobs", token_id=parse_token(admin), nonce=NONCE)
    await stream.say(hello=hello, calls=[pb.Call(tag=1, push=push_of("early"))])
    assert (await stream.hear()).welcome.proof
    [answer] = (await stream.hear()).answers
    assert answer.error.kind == "AccessDeniedError"
    await stream.say(token=admin)
    assert (await stream.ask(2, stats=pb.ReadStats())).WhichOneof("outcome") == "stats"
    with bucketq.connect_sync(url, mode="direct") as queue:
        assert not queue.jobs().jobs


@pytest.mark.parametrize("shown", ["forged", "unknown", "nonsense", "huge"])
async def test_a_bad_token_ends_its_session_and_no_other(
    admin: str, channel: Any, shown: str
) -> None:
    good = await greeted(channel, admin)
    token = {
        "forged": forged(admin),
        "unknown": WRONG,
        "nonsense": "\0../' OR 1=1",
        "huge": "bq_" + "a" * 1_000_000,
    }[shown]
    stream = Stream(channel)
    await stream.say(hello=pb.Hello(queue="jobs", token_id=parse_token(admin), nonce=NONCE))
    await stream.hear()
    await stream.say(token=token, calls=[pb.Call(tag=1, push=push_of())])
    assert await status(stream.hear()) == (
        "UNAUTHENTICATED",
        "the token is invalid: it is wrong, has expired or was revoked",
    )
    assert (await good.ask(1, push=push_of("later"))).WhichOneof("outcome") == "pushed"


async def test_an_answer_does_not_reveal_whether_an_id_or_a_secret_was_wrong(
    admin: str, channel: Any
) -> None:
    said = []
    for token in (WRONG, forged(admin)):
        bearer = ("authorization", f"Bearer {token}")
        ending = unary(channel, "Push", pb.PushRequest(target=TARGET, push=push_of()), bearer)
        said.append(await status(ending))
    assert said[0] == said[1]
    proofs = []
    for _ in range(2):
        stream = Stream(channel)
        hello = pb.Hello(queue="jobs", token_id=parse_token(WRONG), nonce=NONCE)
        await stream.say(hello=hello)
        proofs.append((await stream.hear()).welcome.proof)
    assert len(proofs[0]) == 32, "an id that is not there is answered like one that is"
    assert proofs[0] == proofs[1], "and asking twice does not reveal it either"


async def test_the_proof_is_that_of_the_token_and_of_this_stream(admin: str, channel: Any) -> None:
    found = []
    for nonce in (NONCE, bytes(16)):
        stream = Stream(channel)
        hello = pb.Hello(queue="jobs", token_id=parse_token(admin), nonce=nonce)
        await stream.say(hello=hello)
        welcome = (await stream.hear()).welcome
        digest = token_digest(admin)
        wanted = broker_proof(
            digest, nonce, welcome.incarnation, welcome.broker, int(welcome.epoch)
        )
        assert welcome.proof == wanted
        found.append(welcome.proof)
    assert found[0] != found[1]
    stream = Stream(channel)
    await stream.say(hello=pb.Hello(queue="jobs", token_id=parse_token(admin), nonce=b"short"))
    assert (await status(stream.hear()))[0] == "INVALID_ARGUMENT"


async def test_unary_calls_show_the_token_in_their_metadata(
    admin: str, broker: Served, channel: Any
) -> None:
    request = pb.PushRequest(target=TARGET, push=push_of())
    assert (await status(unary(channel, "Push", request)))[0] == "UNAUTHENTICATED"
    read = await granted_by(admin, f"bucketq://{broker.address}/jobs", "read")
    reader = ("authorization", f"Bearer {read}")
    code, details = await status(unary(channel, "Push", request, reader))
    assert (code, "lacks the right 'push'" in details) == ("PERMISSION_DENIED", True)
    basic = ("authorization", f"Basic {admin}")
    assert (await status(unary(channel, "Push", request, basic)))[0] == "UNAUTHENTICATED"
    assert await unary(channel, "Push", request, ("authorization", f"Bearer {admin}"))


async def test_a_ping_needs_no_token_and_reveals_nothing_about_jobs(
    url: str, admin: str, channel: Any
) -> None:
    with bucketq.connect_sync(url, token=admin) as queue:
        queue.push("secret-kind", "secret-payload")
    body = await unary(channel, "Ping", pb.PingRequest(queue="jobs"))
    assert pb.PingResponse.FromString(body).role == pb.ROLE_LEADING
    assert b"secret" not in body

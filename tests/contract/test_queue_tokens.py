"""What every queue promises to those who hand out access tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import bucketq
from bucketq import InvalidRequestError, KeyConflictError, Queue, RejectedError, TokenInfo
from bucketq.clock import SystemClock
from bucketq.commit.request_ids import RequestIds, token_of
from bucketq.model.operations import GrantToken
from bucketq.model.tokens import parse_token, token_digest
from tests.contract.places import Place


@pytest.fixture
async def old_token(place: Place) -> str:
    """A token that is there already, in a queue that asks for none."""
    async with bucketq.connect(place.url, mode="direct") as direct:
        token = await direct.create_token("old", "admin")
        await direct.configure(require_token=False)
    return token


@pytest.fixture
async def opened(place: Place, old_token: str) -> AsyncIterator[Queue[Any]]:
    """Such a queue, opened without a token."""
    assert old_token
    async with place.connect() as queue:
        yield queue


async def new_tokens(queue: Queue[Any]) -> list[TokenInfo]:
    return [token for token in await queue.tokens() if token.name != "old"]


async def content(place: Place) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((await place.stored()).body)
    return stored


def new_request() -> str:
    request = (
        RequestIds(SystemClock()).give().request(GrantToken(id="", name="", digest="", rights=()))
    )
    token = token_of(request, 0)
    assert token is not None
    return token


async def test_a_new_token_is_listed_with_all_but_its_secret(opened: Queue[Any]) -> None:
    token = await opened.create_token("ci", ["claim", "push"], ttl_s=timedelta(days=90))
    (listed,) = await new_tokens(opened)
    assert listed.id == parse_token(token)
    assert (listed.name, listed.rights) == ("ci", ("push", "claim"))
    assert listed.expires_at is not None
    assert listed.expires_at - listed.created_at == timedelta(days=90)
    assert not hasattr(listed, "digest")
    assert token.rpartition("_")[2] not in repr(listed)


async def test_the_object_holds_the_digest_of_a_token_and_nothing_else_does(
    opened: Queue[Any], place: Place
) -> None:
    token = await opened.create_token("ci", "push")
    rows = (await content(place))["tokens"]
    assert [row["digest"] for row in rows if row["name"] == "ci"] == [token_digest(token)]
    assert token.rpartition("_")[2].encode() not in (await place.stored()).body
    for shown in (await opened.stats(), await opened.snapshot(), await opened.tokens()):
        assert token_digest(token) not in repr(shown)


async def test_the_first_token_makes_brokers_ask_for_tokens(
    queue: Queue[Any], place: Place
) -> None:
    assert (await queue.settings()).require_token is False
    token = await queue.create_token("first", "admin")
    stored = await content(place)
    assert stored["settings"]["require_token"] is True
    assert [row["id"] for row in stored["tokens"]] == [parse_token(token)]


async def test_two_tokens_with_one_name_live_side_by_side_until_one_is_revoked(
    opened: Queue[Any],
) -> None:
    first = await opened.create_token("ci", "push")
    second = await opened.create_token("ci", "push")
    assert first != second
    assert [token.id for token in await new_tokens(opened)] == [
        parse_token(first),
        parse_token(second),
    ]
    assert await opened.revoke_token(parse_token(first)) is True
    assert [token.id for token in await new_tokens(opened)] == [parse_token(second)]
    assert await opened.revoke_token(parse_token(first)) is False


async def test_a_token_without_a_time_to_live_never_expires(opened: Queue[Any]) -> None:
    await opened.create_token("ci", "read")
    (listed,) = await new_tokens(opened)
    assert listed.expires_at is None


async def test_creating_a_token_again_under_the_same_request_gives_the_same_token(
    opened: Queue[Any],
) -> None:
    request = new_request()
    first = await opened.create_token("ci", "push", request=request)
    assert await opened.create_token("ci", "push", request=request) == first
    assert len(await new_tokens(opened)) == 1


async def test_no_token_is_returned_that_the_queue_does_not_know(
    opened: Queue[Any], place: Place
) -> None:
    request = new_request()
    token = await opened.create_token("ci", "push", request=request)
    async with place.connect() as another:
        with pytest.raises(KeyConflictError, match=parse_token(token)):
            await another.create_token("ci", "push", request=request)
    assert [known.id for known in await new_tokens(opened)] == [parse_token(token)]


async def test_a_token_too_many_is_refused(opened: Queue[Any]) -> None:
    await opened.configure(max_tokens=2)
    await opened.create_token("ci", "push")
    with pytest.raises(RejectedError, match="max_tokens"):
        await opened.create_token("ci", "push")


@pytest.mark.parametrize(
    ("name", "rights", "ttl_s"),
    [
        ("", "push", None),
        ("x" * 65, "push", None),
        ("a\nb", "push", None),
        (7, "push", None),
        ("ci", "", None),
        ("ci", [], None),
        ("ci", ["push", "everything"], None),
        ("ci", "push,claim", None),
        ("ci", None, None),
        ("ci", [["push"]], None),
        ("ci", "push", 0),
        ("ci", "push", -1),
        ("ci", "push", 1e12),
        ("ci", "push", timedelta(0)),
        ("ci", "push", "90d"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(
    opened: Queue[Any], name: Any, rights: Any, ttl_s: Any
) -> None:
    with pytest.raises(InvalidRequestError):
        await opened.create_token(name, rights, ttl_s=ttl_s)
    assert await new_tokens(opened) == []


async def test_a_whole_token_is_not_an_id_and_is_not_repeated_in_the_error(
    opened: Queue[Any],
) -> None:
    token = await opened.create_token("ci", "push")
    with pytest.raises(InvalidRequestError) as refused:
        await opened.revoke_token(token)
    assert token not in str(refused.value)
    assert len(await new_tokens(opened)) == 1


async def test_settings_that_are_true_or_false_take_nothing_else(opened: Queue[Any]) -> None:
    for value in (1, 0, "true", None, 0.0):
        with pytest.raises(InvalidRequestError, match="require_token"):
            await opened.configure(require_token=value)
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        await opened.configure(max_tokens=True)
    assert (await opened.configure(require_token=False)).require_token is False


def test_tokens_are_handed_out_without_asyncio_too(place: Place, old_token: str) -> None:
    with place.connect_sync() as queue:
        token = queue.create_token("ci", ["push"], ttl_s=60)
        assert [known.id for known in queue.tokens()] == [
            parse_token(old_token),
            parse_token(token),
        ]
        assert queue.revoke_token(parse_token(token)) is True

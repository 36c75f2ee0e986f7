"""What the cloud store makes of answers that no well-behaved server gives on demand."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bucketq.errors import (
    BucketQError,
    ClosedError,
    InvalidRequestError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.store.base import (
    ObjectMissingError,
    ObjectStore,
    PreconditionFailedError,
    StoredObject,
)
from bucketq.store.url import open_store
from tests.servers.server import ENVIRON
from tests.servers.wire import Message, answer
from tests.unit.store.scripted import Scripted

SCHEMES = ["s3", "gs", "az"]
KEY = "queue.json"
ETAG = '7;"abc"'
DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


def failure(code: str) -> bytes:
    """What providers send with an error; it repeats what must not be logged."""
    return (
        f"<?xml version='1.0'?><Error><Code>{code}</Code>"
        f"<AWSAccessKeyId>{ENVIRON['AWS_ACCESS_KEY_ID']}</AWSAccessKeyId>"
        "<StringToSign>AWS4-HMAC-SHA256 hunter2</StringToSign></Error>"
    ).encode()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


@contextmanager
def answering(
    given: Message | None, scheme: str = "s3", **options: Any
) -> Iterator[tuple[ObjectStore, Scripted]]:
    with Scripted(given) as server:
        options = {"endpoint": f"http://127.0.0.1:{server.port}", **options}
        if scheme == "gs":
            options |= {"anonymous": "true"}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        yield open_store(f"{scheme}://jobs/folder/{KEY}?{query}").store, server


async def outcome(store: ObjectStore, verb: str) -> Any:
    """What comes of a call: an answer, or an error."""
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "read": lambda: store.get(KEY),
        "poll": lambda: store.get_if_changed(KEY, ETAG),
        "range": lambda: store.get_range(KEY, 2, 3),
        "create": lambda: store.create(KEY, b"body"),
        "replace": lambda: store.replace(KEY, b"body", ETAG),
        "put": lambda: store.put(KEY, b"body"),
        "delete": lambda: store.delete(KEY),
        "list": lambda: _listed(store),
    }
    try:
        return await calls[verb]()
    except BucketQError as error:
        return error


async def _listed(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("")]


VERBS = ["read", "range", "create", "replace", "put", "delete", "list"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "InvalidArgument"),
        (400, "ExpiredToken"),
        (401, "Unauthorized"),
        (403, "AccessDenied"),
        (403, "SignatureDoesNotMatch"),
        (403, "RequestTimeTooSkewed"),
        (405, "MethodNotAllowed"),
        (413, "EntityTooLarge"),
        (501, "NotImplemented"),
        (404, "NoSuchBucket"),
        (404, "ContainerNotFound"),
    ],
)
async def test_an_answer_that_proves_that_nothing_was_written_is_final(
    scheme: str, status: int, code: str
) -> None:
    with answering(answer(status, failure(code)), scheme) as (store, _):
        for verb in VERBS:
            error = await outcome(store, verb)
            assert type(error) is StoreRefusedError, (verb, error)
            _demand_discreet(error)
            if status == 404:
                assert "no bucket or container jobs" in str(error)
            else:
                assert f"it answered {status} {code}" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("status", "code", "throttled"),
    [
        (400, "RequestTimeout", False),
        (408, "RequestTimeout", False),
        (409, "ConditionalRequestConflict", False),
        (409, "OperationAborted", False),
        (423, "Locked", False),
        (429, "TooManyRequests", True),
        (500, "InternalError", False),
        (500, "", False),
        (502, "", False),
        (503, "SlowDown", True),
        (503, "ServerBusy", True),
        (503, "ServiceUnavailable", False),
        (504, "", False),
        (507, "InsufficientStorage", False),
        (599, "", False),
    ],
)
async def test_any_other_answer_leaves_the_outcome_unknown(
    scheme: str, status: int, code: str, throttled: bool
) -> None:
    with answering(answer(status, failure(code)), scheme) as (store, server):
        for number, verb in enumerate(VERBS, start=1):
            error = await outcome(store, verb)
            assert type(error) is UnavailableError, (verb, error)
            assert error.throttled is throttled
            _demand_discreet(error)
            assert len(server.asked) == number  # It is not for the client to try again.


def _demand_discreet(error: BaseException) -> None:
    """Neither an error nor what it hangs on shows a credential, or what a server sent."""
    shown: BaseException | None = error
    while shown is not None:
        for secret in (*ENVIRON.values(), "hunter2", "StringToSign"):
            assert secret == "bucketq" or secret not in str(shown)
        shown = shown.__cause__ or shown.__context__


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_conflict_is_recognized_by_its_status(scheme: str) -> None:
    with answering(answer(412, failure("PreconditionFailed")), scheme) as (store, _):
        assert type(await outcome(store, "replace")) is PreconditionFailedError
        assert type(await outcome(store, "create")) is PreconditionFailedError
    with answering(answer(409, failure("BlobAlreadyExists")), scheme) as (store, _):
        assert type(await outcome(store, "create")) is PreconditionFailedError
        assert type(await outcome(store, "replace")) is UnavailableError


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_what_is_missing_depends_on_the_request(scheme: str) -> None:
    with answering(answer(404, failure("NoSuchKey")), scheme) as (store, _):
        for verb in ("read", "poll", "range", "replace"):
            assert type(await outcome(store, verb)) is ObjectMissingError
        for verb in ("create", "put", "list"):
            assert type(await outcome(store, verb)) is StoreRefusedError
        assert scheme == "az" or await outcome(store, "delete") is None


async def test_s3_itself_is_not_asked_again_whether_the_object_is_missing() -> None:
    for status, kind in ((404, ObjectMissingError), (412, PreconditionFailedError)):
        with answering(answer(status, failure("NoSuchKey"))) as (store, server):
            store._reports_missing = True  # type: ignore[attr-defined]
            assert type(await outcome(store, "replace")) is kind
            assert [request.method for request in server.asked] == ["PUT"]


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_an_etag_that_is_not_ours_is_never_sent(scheme: str) -> None:
    """Some of these would match whatever is there, or nothing, and so create the object."""
    found = answer(200, b"body", etag='"abc"', last_modified=DATE, x_goog_generation="7")
    with answering(found, scheme) as (store, server):
        for etag in ("", "0-0-0", "*", ";*", ';"*"', "0", ";", "*;*"):
            with pytest.raises(PreconditionFailedError):
                await store.replace(KEY, b"other", etag)
        assert {request.method for request in server.asked} == {"HEAD"}


async def test_generation_zero_is_never_sent_for_it_would_create_the_object() -> None:
    found = answer(200, b"", etag='"abc"', last_modified=DATE)
    with answering(found, "gs") as (store, server):
        for etag in ('0;"abc"', ';"abc"', '-1;"abc"', '0-0;"abc"', '07;"abc"'):
            with pytest.raises(PreconditionFailedError):
                await store.replace(KEY, b"other", etag)
        assert {request.method for request in server.asked} == {"HEAD"}


async def test_conditions_are_those_of_the_provider() -> None:
    found = answer(200, b"body", etag='"new"', last_modified=DATE, x_goog_generation="8")
    with answering(found, "s3") as (store, server):
        assert await store.replace(KEY, b"body", ETAG) == ';"new"'
        assert await store.create(KEY, b"body") == ';"new"'
        assert server.asked[0].headers["if-match"] == '"abc"'
        assert server.asked[1].headers["if-none-match"] == "*"
    with answering(found, "gs") as (store, server):
        assert await store.replace(KEY, b"body", ETAG) == '8;"new"'
        assert await store.create(KEY, b"body") == '8;"new"'
        asked = [request.headers["x-goog-if-generation-match"] for request in server.asked]
        assert asked == ["7", "0"]


async def test_an_object_of_google_that_was_rewritten_as_it_is_has_changed() -> None:
    same = answer(200, b"body", etag='"abc"', last_modified=DATE, x_goog_generation="8")
    with answering(same, "gs") as (store, _):
        assert await store.get_if_changed(KEY, '7;"abc"') == StoredObject(b"body", '8;"abc"')
        assert await store.get_if_changed(KEY, '8;"abc"') is None


async def test_etags_go_without_quotes_to_servers_that_want_them_so() -> None:
    with answering(answer(200, etag='"new"'), "s3", unquoted_etag="true") as (store, server):
        await store.replace(KEY, b"body", ETAG)
        assert server.asked[0].headers["if-match"] == "abc"


async def test_headers_of_the_address_go_with_each_request() -> None:
    extra = {"header.X-Tigris-Consistent": "true"}
    with answering(answer(200, etag='"new"'), "s3", **extra) as (store, server):
        await store.put(KEY, b"body")
        assert server.asked[0].headers["x-tigris-consistent"] == "true"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_server_that_does_not_answer_times_out(scheme: str, verb: str) -> None:
    # On a busy machine a request may not reach the server before it is given up.
    for timeout_s in ("0.1", "1", "10"):
        with answering(None, scheme, timeout_s=timeout_s) as (store, server):
            async with asyncio.timeout(40):
                error = await outcome(store, verb)
            assert type(error) is UnavailableError
            assert f"no answer in {timeout_s} s" in str(error)
            asked = len(server.asked)
        if asked:
            break
    assert asked == 1, "it is asked once, and not again"


async def test_a_large_write_has_more_time_than_a_small_one() -> None:
    with answering(None, timeout_s="0.1") as (store, _):
        error = await outcome(store, "put")
        assert "0.1 s" in str(error)
        with pytest.raises(UnavailableError, match=r"no answer in 0\.6 s"):
            await store.put(KEY, bytes(512 * 1024))


async def test_a_server_that_is_not_there_leaves_the_outcome_unknown() -> None:
    with answering(answer(200)) as (store, _):
        pass
    for verb in VERBS:
        error = await outcome(store, verb)
        assert type(error) is UnavailableError
        assert "ConnectionRefused" in str(error)
        is_read = verb in {"read", "range", "list"}
        assert ("it cannot be reached" in str(error)) is is_read
        assert ("the outcome is unknown" in str(error)) is not is_read


async def test_a_write_is_one_request_however_large_it_is() -> None:
    """In parts, its condition would be checked with the last one only."""
    with answering(answer(200, etag='"new"')) as (store, server):
        await store.replace(KEY, bytes(12 * 1024 * 1024), ETAG)
        await store.put(KEY, bytes(12 * 1024 * 1024))
        assert [request.method for request in server.asked] == ["PUT", "PUT"]
        assert server.asked[0].headers["if-match"] == '"abc"'


async def test_a_closed_store_says_so() -> None:
    with answering(answer(200, etag='"new"')) as (store, server):
        await store.close()
        with pytest.raises(ClosedError, match="open it again"):
            await store.put(KEY, b"body")
        assert server.asked == []


async def test_a_key_that_leaves_the_folder_is_never_sent() -> None:
    with answering(answer(200, etag='"new"')) as (store, server):
        for key in ("../queue.json", "/queue.json", "a//b", ""):
            with pytest.raises(InvalidRequestError):
                await store.put(key, b"body")
        assert server.asked == []


def test_credentials_can_come_from_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    def provide() -> dict[str, Any]:
        return {
            "access_key_id": "FROM-PROVIDER",
            "secret_access_key": "x",
            "token": None,
            "expires_at": None,
        }

    async def run(port: int) -> None:
        url = f"s3://jobs/{KEY}?endpoint=http://127.0.0.1:{port}"
        await open_store(url, credential_provider=provide).store.put(KEY, b"body")

    with Scripted(answer(200, etag='"new"')) as server:
        asyncio.run(run(server.port))
        assert "Credential=FROM-PROVIDER/" in server.asked[0].headers["authorization"]


async def test_a_provider_that_fails_is_final_and_its_message_is_not_shown() -> None:
    def provide() -> dict[str, Any]:
        raise RuntimeError("hunter2")

    with Scripted(answer(200, etag='"new"')) as server:
        url = f"s3://jobs/{KEY}?endpoint=http://127.0.0.1:{server.port}"
        error = await outcome(open_store(url, credential_provider=provide).store, "replace")
        assert type(error) is StoreRefusedError
        assert "the credential provider failed" in str(error)
        _demand_discreet(error)
        assert server.asked == []


async def test_missing_credentials_are_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any, the client asks the cloud's own machine service, here one that refuses."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with Scripted(answer(404, b"no")) as metadata:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{metadata.port}")
        with answering(answer(200, etag='"new"')) as (store, server):
            for verb in VERBS:
                error = await outcome(store, verb)
                assert type(error) is StoreRefusedError, (verb, error)
                assert "credentials are missing" in str(error)
            assert server.asked == []


@pytest.mark.parametrize(
    ("url", "environ", "hint"),
    [
        ("az://jobs/q", {"AZURE_STORAGE_ACCOUNT_NAME": ""}, "?account=NAME"),
        ("az://jobs/q", {"AZURE_STORAGE_ACCOUNT_KEY": "not base64!"}, "access key is not valid"),
        ("gs://jobs/q", {"GOOGLE_APPLICATION_CREDENTIALS": "/none.json"}, "cannot be read"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_at_once(
    url: str, environ: dict[str, str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    with pytest.raises(InvalidRequestError) as caught:
        open_store(url)
    assert hint in str(caught.value)
    assert "not base64" not in str(caught.value)


@pytest.mark.parametrize("status", [412, 503])
async def test_an_error_is_freed_after_use_with_its_callers(status: int) -> None:
    gc.collect()
    gc.disable()
    try:
        with answering(answer(status, failure("Whatever"))) as (store, _):
            try:
                await store.replace(KEY, b"body", ETAG)
            except BucketQError as error:
                gone = weakref.ref(error)
            assert gone() is None
            await store.close()
    finally:
        gc.enable()

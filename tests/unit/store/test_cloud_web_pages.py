"""How the cloud store treats an endpoint that is not a store, but a web site."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.store.base import ObjectMissingError, ObjectStore
from bucketq.store.url import open_store
from tests.servers.server import ENVIRON
from tests.servers.wire import Message, answer
from tests.unit.store.scripted import Scripted
from tests.unit.store.test_cloud import KEY, SCHEMES, failure, outcome

PAGE = b"<html><body>Welcome</body></html>"
PAGES = [
    PAGE,
    b"<!DOCTYPE HTML>\n<html></html>",
    b" \r\n<!doctype html>",
    b'<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html><html></html>',
]
SENTENCE = "answers with a web page, not as a store does; check the endpoint"
READS = ["read", "range", "list"]
WRITES = ["create", "replace", "put", "delete"]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


def open_at(port: int, scheme: str) -> ObjectStore:
    more = "&anonymous=true" if scheme == "gs" else ""
    return open_store(f"{scheme}://jobs/{KEY}?endpoint=http://127.0.0.1:{port}{more}").store


@contextmanager
def paging(scheme: str, status: int, page: bytes = PAGE, **headers: str) -> Iterator[ObjectStore]:
    with Scripted(answer(status, page, content_type="text/html", **headers)) as server:
        yield open_at(server.port, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_page_of_html_is_not_an_answer(scheme: str) -> None:
    with paging(scheme, 200) as store:
        for verb in READS:
            error = await outcome(store, verb)
            assert type(error) is StoreRefusedError, (verb, error)
            assert "check the endpoint" in str(error)
        for verb in ("create", "replace", "put"):
            error = await outcome(store, verb)
            assert type(error) is UnavailableError  # Something may have been written.
            assert "check the endpoint" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("page", PAGES)
async def test_a_page_that_refuses_is_final_and_reported_as_a_page(
    scheme: str, page: bytes
) -> None:
    for status in (403, 405, 501):
        with paging(scheme, status, page) as store:
            for verb in READS + WRITES:
                error = await outcome(store, verb)
                assert type(error) is StoreRefusedError, (verb, error)
                assert SENTENCE in str(error)
                assert str(status) in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("status", [400, 401, 404, 418])
async def test_a_page_of_another_status_is_final_for_reads_alone(scheme: str, status: int) -> None:
    with paging(scheme, status) as store:
        for verb in [*READS, "poll"]:
            error = await outcome(store, verb)
            if scheme == "gs" and verb == "poll" and status != 404:
                continue  # The answer to a HEAD has no body.
            assert type(error) is StoreRefusedError, (verb, error)
            assert SENTENCE in str(error)
        for verb in WRITES:
            error = await outcome(store, verb)
            assert type(error) is UnavailableError, (verb, error)
            assert SENTENCE in str(error)
            assert "the outcome is unknown" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_gateway_that_sends_a_page_while_its_store_is_away_is_asked_again(
    scheme: str,
) -> None:
    for status in (429, 500, 502, 503, 504):
        with paging(scheme, status) as store:
            for verb in READS + WRITES:
                error = await outcome(store, verb)
                assert type(error) is UnavailableError, (verb, error)
                assert SENTENCE not in str(error)
    with paging(scheme, 413) as store:
        assert "too large" in str(await outcome(store, "put"))


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_redirect_to_a_login_page_is_not_an_answer(scheme: str) -> None:
    with Scripted(answer(200, PAGE, content_type="text/html")) as login:
        to = f"http://127.0.0.1:{login.port}/login"
        with paging(scheme, 302, location=to) as store:
            for verb in READS:
                error = await outcome(store, verb)
                assert type(error) is StoreRefusedError, (verb, error)
                assert "check the endpoint" in str(error)
            for verb in ("create", "replace", "put"):
                assert type(await outcome(store, verb)) is UnavailableError


class Quiet(SimpleHTTPRequestHandler):
    """What ``python -m http.server`` runs, without its log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_file_server_is_not_a_store(scheme: str, tmp_path: Path) -> None:
    for has_folder in (False, True):
        if has_folder:
            (tmp_path / "jobs").mkdir()  # Its listing of a directory comes with a 200.
        handler = partial(Quiet, directory=str(tmp_path))
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            store = open_at(server.server_port, scheme)
            for verb in ["create", "replace", "put", *READS]:
                error = await outcome(store, verb)
                assert type(error) is StoreRefusedError, (verb, error)
                assert "check the endpoint" in str(error)
            server.shutdown()


EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


class Empty(Scripted):
    """A store without objects, of S3 or Google."""

    async def handle(self, request: Message, writer: asyncio.StreamWriter) -> None:
        is_listing = "list-type" in request.first
        self.given = answer(200, EMPTY) if is_listing else answer(404, failure("NoSuchKey"))
        await super().handle(request, writer)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
async def test_an_empty_listing_is_believed_once_a_missing_object_is_reported(
    scheme: str,
) -> None:
    with Empty(None) as server:
        store = open_at(server.port, scheme)
        for _ in range(3):
            assert await outcome(store, "list") == []
        assert len(server.asked) == 4  # What was seen a moment ago need not be asked again.
        assert type(await outcome(store, "read")) is ObjectMissingError

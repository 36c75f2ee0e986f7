"""A store in the cloud: S3 and what is compatible with it, Google Cloud Storage, Azure Blob.

Guarantees: each call sends its request once. The client's own retries are off, because a
conditional write whose answer is lost would be retried below us, conflict with itself, and
come back as another writer's change. The writer, which knows its commit, resolves the doubt.
A call ends in time, and its connection is dropped with it. No message shows a credential.

Reads and writes only the objects below the folder of the address.

This is the only module that imports obstore. It is imported when a cloud address is opened and
not before, since obstore starts threads and does not survive a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote

import obstore
from obstore.exceptions import BaseError, NotModifiedError

from bucketq.errors import (
    BucketQError,
    ClosedError,
    InvalidRequestError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.store.aws_profile import ProfileCredentials, find_profile
from bucketq.store.base import (
    FolderListing,
    ObjectInfo,
    ObjectMissingError,
    ObjectTooShortError,
    PreconditionFailedError,
    StoredObject,
    check_range,
    too_short,
)
from bucketq.store.cloud_answers import WEB_PAGE, HttpAnswer, Question, judge, read_error
from bucketq.store.cloud_options import CloudAddress, check_key, read_address
from bucketq.tracing import storage_span

T = TypeVar("T")

_SLOWEST_BYTES_PER_S = 1024 * 1024
"""A slower connection is broken: the time for a request grows with its size at this rate."""
_PAGE_LENGTH = 1000
"""The most that S3 returns in one page of a listing."""
_IDLE_S = 15
"""Shorter than the idle timeouts of servers: a write on a connection that the server has closed
already would be lost, and its outcome unknown."""
_LAST_BREATH_S = 0.05
"""How long a thread of the client may need after a call, with much to spare."""
_EXIT_S = 2.0
"""How long the exit of the process may wait for calls of other threads."""
_SEEN_FOR_S = 60.0
"""For how long a listing proves that the endpoint is a store: then one more request is cheap."""
_NO_SUCH_KEY = "bucketq-no-such-object"
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_UNAUTHORIZED = frozenset({401, 403})

_CLIENTS: dict[str, Callable[..., Any]] = {
    "s3": obstore.store.S3Store,
    "gs": obstore.store.GCSStore,
    "az": obstore.store.AzureStore,
}


def open_cloud(
    parts: SplitResult,
    credential_provider: Callable[[], Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[CloudStore, str, str]:
    """Open a cloud address; return the store, the key of the queue in it, and a plain address."""
    _exit.demand_same_process()
    address = read_address(parts, environ)
    is_signed = "skip_signature" not in address.config
    if credential_provider is None and address.scheme == "s3" and is_signed:
        profile = find_profile(environ)
        if profile is not None:
            credential_provider = ProfileCredentials(profile)
            if credential_provider.region and not any(map(environ.get, _REGION_VARIABLES)):
                # That of the address is stronger.
                config = {"region": credential_provider.region} | address.config
                address = replace(address, config=config)
    return CloudStore(address, credential_provider), address.name, address.url


class CloudStore:
    """An ``ObjectStore`` whose objects lie below one folder of a bucket or container.

    An etag is the provider's version and ETag, joined by a semicolon. Google compares the
    first, the others the second. Only what has this form is ever sent as a condition, since
    some values (``*``, generation 0) would turn "replace this version" into something else.
    """

    def __init__(
        self, address: CloudAddress, credential_provider: Callable[[], Any] | None = None
    ) -> None:
        """Make a client; it sends nothing before it is used."""
        self._address = address
        self._folder = address.folder
        self.url = f"{address.scheme}://{address.bucket}/{quote(address.folder)}".rstrip("/")
        self.write_interval_s = address.write_interval_s
        is_aws = address.scheme == "s3" and address.endpoint is None
        # S3 itself distinguishes a missing object from a changed one. Others do not, so we ask.
        self._reports_missing = is_aws
        # Compatible servers, and the directory buckets of S3 Express, list in any order.
        self._lists_in_order = address.scheme != "s3" or (
            is_aws and not address.bucket.endswith("--x-s3")
        )
        self._client = _make_client(address, credential_provider)
        given = credential_provider
        self._profile = given if isinstance(given, ProfileCredentials) else None
        self._closed = False
        # When a listing last showed that this is a store.
        self._store_seen_s = -math.inf

    async def get(self, key: str) -> StoredObject:
        """Read an object. Raises ``ObjectMissingError``."""
        found = await self._read(key, {})
        assert found is not None  # noqa: S101 - only a condition goes without an object
        return found

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read the object if its etag differs; return None if it is unchanged."""
        if self._address.scheme == "gs":
            # There the ETag depends on the content alone: an object that was rewritten unchanged
            # has another generation, and a replacement with the old one is always refused.
            with suppress(ObjectMissingError):  # The GET below reports a missing object.
                meta = await self._ask("read", key, self._client.head_async, 0)
                if _join_etag(meta) == etag:
                    return None
            return await self.get(key)
        _, _, tag = etag.partition(";")
        return await self._read(key, {"if_none_match": self._spelled(tag)} if tag else {})

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        check_range(offset, length)
        try:
            found = await self._read(key, {"range": (offset, offset + length)})
        except ObjectTooShortError as error:
            raise too_short(key, self.url, offset, length) from error
        assert found is not None  # noqa: S101 - only a condition goes without an object
        if len(found.body) != length:
            raise too_short(key, self.url, offset, length)
        return found.body

    async def create(self, key: str, body: bytes) -> str:
        """Write an object that must not exist yet; return its etag."""
        return await self._write("create", key, body, "create")

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object that must still have ``etag``; return its new one."""
        condition = self._condition(etag)
        if condition is None:
            await self._demand_present(key)
            raise PreconditionFailedError(f"{key} in {self.url} never had the etag {etag!r}")
        try:
            return await self._write("replace", key, body, condition)
        except PreconditionFailedError:
            if not self._reports_missing:
                with suppress(UnavailableError, StoreRefusedError):
                    await self._demand_present(key)
            raise

    async def put(self, key: str, body: bytes) -> str:
        """Write an object whatever is there; return its etag."""
        return await self._write("put", key, body, "overwrite")

    async def delete(self, key: str) -> None:
        """Delete an object. Does nothing if it does not exist."""
        with suppress(ObjectMissingError):
            await self._ask("delete", key, self._client.delete_async, 0)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List the objects whose keys begin with ``prefix``, in order of their keys.

        The provider is asked for the last folder of the prefix, page by page. If it is not
        known to list in order of keys, all pages are read first and sorted here.
        """
        pages = self._pages(prefix)
        if self._lists_in_order:
            async for info in pages:
                yield info
        else:
            for info in sorted([info async for info in pages], key=lambda info: info.key.encode()):
                yield info

    async def list_folder(self, folder: str) -> FolderListing:
        """List what is directly in a folder: objects, and folders."""
        path = self._folder + folder
        listing = partial(self._client.list_with_delimiter_async, path or None)
        found = await self._ask("list", folder, lambda _: listing(), 0)
        objects = [
            ObjectInfo(
                entry["path"].removeprefix(self._folder), entry["size"], entry["last_modified"]
            )
            for entry in found["objects"]
        ]
        folders = [f"{each.removeprefix(self._folder)}/" for each in found["common_prefixes"]]
        if not objects and not folders:
            await self._demand_store(folder)
        return FolderListing(objects, folders)

    async def _pages(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        folder = self._folder + prefix[: prefix.rfind("/") + 1]
        start = self._folder + prefix[:-1]
        offset = start if len(start) > len(folder) else None
        pages = self._client.list(folder or None, offset=offset, chunk_size=_PAGE_LENGTH)
        while True:
            page = await self._ask("list", prefix, lambda _: _next_page(pages), 0)
            if page:
                self._store_seen_s = asyncio.get_running_loop().time()
            elif asyncio.get_running_loop().time() - self._store_seen_s > _SEEN_FOR_S:
                await self._demand_store(prefix)
            for entry in page or ():
                key = entry["path"].removeprefix(self._folder)
                if key.startswith(prefix):
                    yield ObjectInfo(key, entry["size"], entry["last_modified"])
            if page is None:
                return

    async def _demand_store(self, prefix: str) -> None:
        """Distinguish an empty listing from a web page, which the client reads as one too."""
        try:
            await self._ask("read", _NO_SUCH_KEY, self._client.get_async, 0)
        except ObjectMissingError:
            self._store_seen_s = asyncio.get_running_loop().time()
            return
        raise StoreRefusedError(f"cannot list {prefix} in {self.url}: it {WEB_PAGE}")

    async def close(self) -> None:
        """Refuse further calls. Idle connections end by themselves."""
        self._closed = True

    async def _read(self, key: str, options: dict[str, Any]) -> StoredObject | None:
        try:
            result = await self._ask(
                "read", key, lambda path: self._client.get_async(path, options=options), 0
            )
        except NotModifiedError:
            return None
        meta = result.meta
        etag = _join_etag(meta)
        if etag is None:
            raise StoreRefusedError(
                f"cannot read {key} in {self.url}: the answer has no ETag, so it is not from an "
                "object store; check the endpoint"
            )
        start, stop = result.range
        body = bytes(await self._ask("read", key, lambda _: result.bytes_async(), stop - start))
        if len(body) != stop - start:
            raise UnavailableError(
                f"cannot read {key} in {self.url}: {len(body)} of {stop - start} bytes came; try "
                "again"
            )
        return StoredObject(body, etag)

    async def _write(self, verb: str, key: str, body: bytes, mode: str | dict[str, str]) -> str:
        # In one part, because a write in several parts checks its condition at the end only.
        result = await self._ask(
            verb,
            key,
            lambda path: self._client.put_async(path, body, mode=mode, use_multipart=False),
            len(body),
        )
        etag = _join_etag(result)
        if etag is None:
            raise UnavailableError(
                f"cannot {verb} {key} in {self.url}: the answer has no ETag, so it is not from an "
                "object store; the outcome is unknown, check the endpoint"
            )
        return etag

    async def _demand_present(self, key: str) -> None:
        await self._ask("read", key, self._client.head_async, 0)

    async def _ask(
        self, verb: str, key: str, call: Callable[[str], Awaitable[T]], size_bytes: int
    ) -> T:
        """Send one request; its timeout grows with its size."""
        if self._closed or _exit.has_begun:
            raise ClosedError(f"the store {self.url} is closed; open it again")
        _exit.demand_same_process()
        if verb != "list":
            check_key(key)
        limit_s = self._address.timeout_s + size_bytes / _SLOWEST_BYTES_PER_S
        try:
            with _exit, storage_span(verb, self.url, key, expected=NotModifiedError):
                async with asyncio.timeout(limit_s):
                    return await call(self._folder + key)
        except NotModifiedError:
            if verb == "read":
                raise
            problem: BucketQError = UnavailableError(
                f"cannot {verb} {key} in {self.url}: it answered 304 to a write; the outcome is "
                "unknown, try again"
            )
        except TimeoutError:
            problem = UnavailableError(
                f"cannot {verb} {key} in {self.url}: no answer in {limit_s:.3g} s; the outcome is "
                "unknown, try again"
            )
        except (BaseError, FileNotFoundError) as error:
            question = Question(verb, key, self.url, self._address.bucket)
            problem = self._judge(read_error(error), question)
        # Not chained to the client's error, which may contain secrets.
        try:
            raise problem
        finally:
            # A frame that holds its own exception is a reference cycle, which keeps callers too.
            del problem

    def _judge(self, answer: HttpAnswer, question: Question) -> BucketQError:
        """Return the error that an answer means, with the profile if it is about credentials."""
        profile = self._profile
        if profile is not None and answer.lacks_credentials and profile.problem:
            return StoreRefusedError(f"{question.failure}: {profile.problem}")
        problem = judge(answer, question)
        if profile is not None and answer.status in _UNAUTHORIZED:
            return StoreRefusedError(f"{problem} (the AWS profile is {profile.profile!r})")
        return problem

    def _condition(self, etag: str) -> dict[str, str] | None:
        """Return the condition for a version; None if it can never match."""
        version, _, tag = etag.partition(";")
        if self._address.scheme == "gs":
            return {"version": version} if re.fullmatch(r"[1-9][0-9]*", version) else None
        return {"e_tag": self._spelled(tag)} if tag and "*" not in tag else None

    def _spelled(self, tag: str) -> str:
        """Return an ETag as this server expects it."""
        return tag.strip('"') if self._address.unquoted_etag else tag


class _Exit:
    """Lets the client's threads finish before the interpreter exits.

    When a call ends, a thread of the client still releases Python objects for a moment. If
    the interpreter exits in that moment, the process aborts (about one exit in ten). So the
    exit waits for calls in other threads, and then for a moment more.

    It also knows which process those threads belong to: a forked child does not have them, and a
    call in it would wait for them until its timeout.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._used_in: int | None = None
        self.has_begun = False

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1
            if self._used_in is None:
                self._used_in = os.getpid()
                atexit.register(self._wait)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1

    def demand_same_process(self) -> None:
        """Raise in a forked child if the client was used in its parent."""
        # Without the lock, which a thread of the parent may have held during the fork.
        if self._used_in not in {None, os.getpid()}:
            raise ClosedError(
                f"object stores were used in process {self._used_in} before the fork, and their "
                "client does not survive it: start workers with spawn or forkserver, or connect "
                "for the first time in the child"
            )

    def _wait(self) -> None:
        if self._used_in != os.getpid():
            return
        self.has_begun = True
        for _ in range(int(_EXIT_S / _LAST_BREATH_S)):
            time.sleep(_LAST_BREATH_S)
            if not self._calls:
                return


_exit = _Exit()


def _make_client(address: CloudAddress, credential_provider: Callable[[], Any] | None) -> Any:
    options = address.client | {
        # ``_ask`` limits each call, depending on its size.
        "timeout": timedelta(hours=1),
        "pool_idle_timeout": timedelta(seconds=_IDLE_S),
    }
    more = {} if credential_provider is None else {"credential_provider": credential_provider}
    problem = "it cannot be used"
    try:
        return _CLIENTS[address.scheme](
            address.bucket,
            config=address.config,
            client_options=options,
            retry_config={"max_retries": 0, "retry_timeout": timedelta(0)},
            **more,
        )
    except (BaseError, ValueError, TypeError) as error:
        problem = _shortly(error)
    # Not chained: the client's error repeats values of its settings.
    raise InvalidRequestError(
        f"{address.scheme}://{address.bucket} cannot be opened: {problem}; check the "
        "credentials and settings in the environment"
    )


def _shortly(error: Exception) -> str:
    """Name what is wrong with the settings of a client, without their values."""
    reasons = {
        "MissingAccount": "no storage account is named (?account=NAME)",
        "OpenCredentials": "the file of credentials cannot be read",
        "DecodeCredentials": "the file of credentials cannot be understood",
        "InvalidAccessKey": "the access key is not valid",
    }
    text = str(error)
    return next((reason for name, reason in reasons.items() if name in text), "wrong settings")


async def _next_page(pages: Any) -> Any:
    """Return the next page of a listing, or None at its end."""
    try:
        return await anext(pages)
    except StopAsyncIteration:
        return None


def _join_etag(meta: Mapping[str, Any]) -> str | None:
    """Join the version and the ETag that a provider returns; None if it returns neither."""
    version, tag = meta["version"] or "", meta["e_tag"] or ""
    return f"{version};{tag}" if version or tag else None

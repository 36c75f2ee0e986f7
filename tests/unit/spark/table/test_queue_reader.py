"""A queue at one version: its lines, chosen by kind and status, or a reason why there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import JobSpec
from bucketq.errors import CorruptStateError, QueueNotFoundError, UnavailableError
from bucketq.spark.format_options import read_options
from bucketq.spark.table.queue_reader import read_snapshot
from bucketq.store.base import StoredObject
from bucketq.store.local import LocalStore


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


def payloads(url: str, **options: str) -> list[Any]:
    lines = read_snapshot(read_options({"path": url, **options}))
    return [json.loads(line)["payload"] for line in lines]


def test_jobs_come_in_their_order_chosen_by_kind_and_status(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        assert payloads(url) == []
        kinds = ("a", "b", "a", "c")
        queue.push_many([JobSpec(kind=kind, payload=n) for n, kind in enumerate(kinds)])
        queue.claim("a")
    assert payloads(url) == [0, 1, 2, 3]
    assert payloads(url, kind="a, c") == [0, 2, 3]
    assert payloads(url, status="queued") == [1, 2, 3]
    assert payloads(url, status="running,dead", kind="a") == [0]
    assert payloads(url, kind="none") == []


def test_a_missing_or_corrupt_queue_is_reported(url: str, tmp_path: Path) -> None:
    with pytest.raises(QueueNotFoundError, match=r"no queue at .*queue.json"):
        payloads(url)
    (tmp_path / "queue.json").write_bytes(b'{"format":1}')
    with pytest.raises(CorruptStateError, match="not a queue that can be trusted"):
        payloads(url)


@pytest.fixture
def shaky(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Errors that stores will raise, one at each request, before they answer."""
    errors: list[Exception] = []
    get = LocalStore.get

    async def try_get(store: LocalStore, key: str) -> StoredObject:
        if errors:
            raise errors.pop()
        return await get(store, key)

    monkeypatch.setattr(LocalStore, "get", try_get)
    return errors


def test_an_unavailable_store_is_retried_until_the_timeout(
    url: str, shaky: list[Exception]
) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("a", 1)
    shaky.extend([UnavailableError("not now")] * 2)
    assert payloads(url) == [1]
    shaky.extend([UnavailableError("not now")] * 1000)
    with pytest.raises(UnavailableError, match=r"could not be read within 0.2 s: not now"):
        payloads(url, timeoutSeconds="0.2")

"""How addresses of queues are understood, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.store.local import LocalStore
from bucketq.store.memory import MemoryStore
from bucketq.store.url import open_store


@pytest.mark.parametrize(
    ("url", "key", "plain"),
    [
        ("file:///srv/jobs/queue.json", "queue.json", "file:///srv/jobs/queue.json"),
        ("file://localhost/srv/queue.json", "queue.json", "file:///srv/queue.json"),
        ("FILE://LocalHost/srv/queue.json", "queue.json", "file:///srv/queue.json"),
        ("file:/srv/queue.json", "queue.json", "file:///srv/queue.json"),
        ("file:///queue.json", "queue.json", "file:///queue.json"),
        ("file:////srv//./queue.json", "queue.json", "file:///srv/queue.json"),
        (
            "file:///srv/my%20jobs/a%3Fb%23c.json",
            "a?b#c.json",
            "file:///srv/my%20jobs/a%3Fb%23c.json",
        ),
        ("file:///srv/my jobs/queue.json", "queue.json", "file:///srv/my%20jobs/queue.json"),
        ("file:///srv/100%25/queue.json", "queue.json", "file:///srv/100%25/queue.json"),
        ("file:///srv/Gr%C3%B6%C3%9Fe.json", "Größe.json", "file:///srv/Gr%C3%B6%C3%9Fe.json"),
        ("file:///srv/a@b:c/.queue.json", ".queue.json", "file:///srv/a%40b%3Ac/.queue.json"),
    ],
)
async def test_a_file_address_is_a_directory_and_the_name_of_a_file(
    url: str, key: str, plain: str
) -> None:
    location = open_store(url)
    assert isinstance(location.store, LocalStore)
    assert location.key == key
    assert location.url == plain
    assert open_store(location.url).url == location.url


async def test_a_queue_is_written_to_the_path_of_its_address(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "Größe 100%.json"
    location = open_store(path.as_uri())
    await location.store.create(location.key, b"{}")
    assert path.read_bytes() == b"{}"
    await location.store.close()


def test_opening_an_address_touches_no_file(tmp_path: Path) -> None:
    open_store((tmp_path / "folder" / "queue.json").as_uri())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("file://srv/jobs/queue.json", "three slashes"),
        ("file://~/queue.json", "three slashes"),
        ("file://localhost:80/srv/queue.json", "three slashes"),
        ("file:queue.json", "file:///"),
        ("file://", "file:///"),
        ("file:///", "directory"),
        ("file:///srv/jobs/", "file:///srv/jobs/queue.json"),
        ("file:///srv/jobs/.", "file:///srv/jobs/queue.json"),
        ("file:///srv/jobs/..", "file:///srv/jobs/queue.json"),
        ("file:///srv/queue.json?mode=rw", "%3F"),
        ("file:///srv/queue.json?", "%3F"),
        ("file:///srv/queue.json#top", "%23"),
        ("file:///srv/50%/queue.json", "%25"),
        ("file:///srv/queue%00.json", "file:///"),
        ("file:///srv/%FF.json", "UTF-8"),
        ("file:///srv/queue\n.json", "control character"),
        ("file:///srv/queue.json ", "blank"),
        ("file:///srv/a%5Cb.json", "backslashes"),
        ("file:///srv/.bucketq.lock", ".bucketq."),
        ("file://[srv/queue.json", "file:///"),
        ("memory://jobs/queue.json", "memory://jobs"),
        ("memory://a b", "memory://jobs"),
        ("memory:jobs", "memory://jobs"),
        ("memory://jobs?x=1", "options"),
        ("s3://bucket", "s3://bucket/queue.json"),
        ("gs://bucket/", "gs://bucket/queue.json"),
        ("az://container/jobs/", "az://container/jobs/queue.json"),
        ("https://example.com/queue.json", "use s3://, gs://, az://, file:// or memory://"),
        ("/srv/my jobs/queue.json", "file:///srv/my%20jobs/queue.json"),
        ("queue.json", "file:///"),
        ("./queue.json", "file:///"),
        ("C:\\jobs\\queue.json", "file:///"),
        ("", "file:///"),
        ("://", "file:///"),
        (" file:///srv/queue.json", "file:///"),
    ],
)
def test_a_wrong_address_is_refused_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_store(url)
    assert hint in str(caught.value)


@pytest.mark.parametrize("url", [None, 7, b"file:///srv/queue.json", Path("/srv/queue.json")])
def test_an_address_that_is_not_a_string_is_refused(url: object) -> None:
    with pytest.raises(InvalidRequestError, match="is a string, not"):
        open_store(url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "file://alice:hunter2@localhost/srv/queue.json",
        "file://alice:hunter2@/srv/queue.json",
        "memory://alice:hunter2@jobs",
        "s3://alice:hunter2@bucket/queue.json",
        "https://alice:hunter2@example.com/queue.json",
        "alice:hunter2@example.com/queue.json",
        "/alice:hunter2@example.com/queue.json",
        "//alice:hunter2@example.com/queue.json",
        "file://alice:hunter2@[/queue.json",
        "file://alice:hunter2\u2100@x/queue.json",
    ],
)
def test_a_password_in_an_address_is_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_store(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "alice" not in str(error)
        assert "hunter2" not in str(error)
        error = error.__cause__


async def test_a_memory_address_without_a_name_is_a_store_of_its_own() -> None:
    one, two = open_store("memory://"), open_store("memory://")
    assert isinstance(one.store, MemoryStore)
    assert one.store is not two.store
    assert (one.key, one.url) == ("queue.json", "memory://")


async def test_a_memory_address_with_a_name_is_shared_in_the_process() -> None:
    one, two = open_store("memory://test-url"), open_store("memory://test-url")
    assert one.store is two.store
    assert (one.key, one.url) == ("queue.json", "memory://test-url")

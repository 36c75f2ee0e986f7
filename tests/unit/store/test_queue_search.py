"""Queues are found under a folder, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import bucketq
from bucketq.errors import InvalidRequestError
from bucketq.store.queue_search import QueueFolder, is_folder


def create(path: Path) -> None:
    with bucketq.connect_sync(path.as_uri(), mode="direct"):
        pass


async def paths(folder: QueueFolder) -> list[str]:
    return [each.path for each in await folder.find()]


async def test_queues_are_found_in_folders_but_not_in_their_own(tmp_path: Path) -> None:
    for path in ("a.json", "mail/queue.json", "mail/eu/west.json", "with blank/ü.json"):
        create(tmp_path / path)
    # A copy of a queue beside its archive is no queue of its own.
    create(tmp_path / "a" / "copies" / "old.json")
    (tmp_path / "notes.json").write_text('{"version":1}')
    (tmp_path / "short.json").write_text("{}")
    (tmp_path / "b.txt").write_text('{"format":1')
    folder = QueueFolder(tmp_path.as_uri() + "/")
    found = {each.path: each for each in await folder.find()}
    assert [*found] == ["a.json", "mail/eu/west.json", "mail/queue.json", "with blank/ü.json"]
    assert [each.name for each in found.values()] == ["a", "mail/eu/west", "mail", "with blank/ü"]
    for path, each in found.items():
        assert each.url == (tmp_path / path).as_uri()
    await folder.close()


async def test_what_has_changed_is_looked_at_again(tmp_path: Path) -> None:
    folder, path = QueueFolder(tmp_path.as_uri() + "/"), tmp_path / "a.json"
    assert await paths(folder) == []
    path.write_text("no queue, but long enough")
    assert await paths(folder) == []
    path.unlink()
    create(path)
    assert await paths(folder) == ["a.json"]
    path.unlink()
    assert await paths(folder) == []
    await folder.close()


async def test_what_is_no_queue_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("no queue, but long enough")
    folder = QueueFolder(tmp_path.as_uri() + "/")
    assert await paths(folder) == []
    reads = list[str]()
    monkeypatch.setattr(folder._store, "get_range", lambda key, *_: reads.append(key))
    assert await paths(folder) == []
    assert not reads
    os.utime(path, (1, 1))
    with pytest.raises(TypeError):  # What replaces the method cannot be awaited.
        await paths(folder)
    assert reads == ["a.json"]
    await folder.close()


def test_the_address_of_a_folder_ends_in_a_slash() -> None:
    assert is_folder("s3://bucket/jobs/")
    assert is_folder("s3://bucket/jobs/?region=eu-west-1")
    assert not is_folder("s3://bucket/jobs.json?note=/")
    assert not is_folder("memory://")
    with pytest.raises(InvalidRequestError, match="ends in a slash"):
        QueueFolder("file:///srv/jobs")

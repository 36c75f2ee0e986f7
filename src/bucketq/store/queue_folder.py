"""The folder of a queue: the prefix of the keys of all its objects but the queue object.

``jobs/queue.json`` keeps its archive and its segments under ``jobs/queue/``, and so does an object
``jobs/queue``. On a disk that is impossible, because ``jobs/queue`` is a file: there they lie
under ``jobs/queue.d/``.

A queue with partitions keeps those after the first under ``jobs/queue/partitions/``, each in a
folder: on a disk, writers of one folder wait for each other. Each has its own segments and history,
and all share the archive and the large payloads of the queue.
"""

from __future__ import annotations

import re

_PARTITION = re.compile(r"(.+/)partitions/[0-9]{1,3}/partition\.json")


def folder_of(store_url: str, queue_key: str) -> str:
    """Return the prefix of the keys of a queue's other objects; it ends in a slash."""
    stem = queue_key.removesuffix(".json")
    is_taken = stem == queue_key and store_url.startswith("file:")
    if is_taken or stem.rpartition("/")[2] == "":
        return f"{queue_key}.d/"
    return f"{stem}/"


def partition_key(store_url: str, queue_key: str, index: int) -> str:
    """Return the key of a partition of a queue."""
    if not index:
        return queue_key
    return f"{folder_of(store_url, queue_key)}partitions/{index}/partition.json"


def shared_folder_of(store_url: str, key: str) -> str:
    """Return the folder of the queue that an object is, or is a partition of."""
    found = _PARTITION.fullmatch(key)
    return folder_of(store_url, key) if found is None else found[1]

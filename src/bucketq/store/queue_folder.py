"""The folder of a queue: the prefix of the keys of all its objects but the queue object.

``jobs/queue.json`` keeps its archive and its segments under ``jobs/queue/``, and so does an object
``jobs/queue``. On a disk that is impossible, because ``jobs/queue`` is a file: there they lie
under ``jobs/queue.d/``.
"""

from __future__ import annotations


def folder_of(store_url: str, queue_key: str) -> str:
    """Return the prefix of the keys of a queue's other objects; it ends in a slash."""
    stem = queue_key.removesuffix(".json")
    is_taken = stem == queue_key and store_url.startswith("file:")
    if is_taken or stem.rpartition("/")[2] == "":
        return f"{queue_key}.d/"
    return f"{stem}/"

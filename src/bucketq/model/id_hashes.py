"""The hashes by which a segment finds rows: of their ids, and of their unique names."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from hashlib import blake2b

HASH_BYTES = 8


def unique_name(kind: str, unique: str) -> str:
    """Return the unique name of a job together with its kind; no kind has a line feed."""
    return f"{kind}\n{unique}"


def hash_id(row_id: str) -> int:
    """Return the hash by which a segment finds a row; it is the same in every process."""
    return int.from_bytes(blake2b(row_id.encode(), digest_size=HASH_BYTES).digest(), "big")


def hash_ids(ids: Iterable[str]) -> array[int]:
    """Return what ``hash_id`` returns for each id; to copy a hash is faster than to begin one."""
    begin, digests = blake2b(digest_size=HASH_BYTES).copy, list[bytes]()
    for row_id in ids:
        state = begin()
        state.update(row_id.encode())
        digests.append(state.digest())
    hashes = array("Q", b"".join(digests))
    if sys.byteorder == "little":
        hashes.byteswap()
    return hashes

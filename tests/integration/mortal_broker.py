"""``bucketq serve`` that ends by ``kill -9`` at a write of a large payload.

``BUCKETQ_TEST_DIE`` has three words: at which write (the ``marker`` of an object, a ``part`` of it,
the ``commit`` that names it, or the ``unmark`` after that), ``before`` or ``after`` it, and the
number of that write. Without the variable it lives as long as any broker. Orphans can be swept
soon.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from bucketq.cli import main
from bucketq.model.effects import side_refs
from bucketq.store.cloud import CloudStore
from bucketq.store.local import LocalStore
from tests.integration.payload_program import VERSIONS

_PART = re.compile(r"/payloads/.*\.\d{5}")
_Write = Callable[..., Awaitable[Any]]


def kind_of(verb: str, key: str, body: bytes) -> str:
    """Name a write."""
    if "/payloads/" in key and "/pending/" in key:
        return "unmark" if verb == "delete" else "marker"
    if _PART.search(key):
        return "part"
    return "commit" if b'_encoding":"object' in body else ""


def make_mortal(what: str, when: str, number: int) -> None:
    """Let this process die at a write."""
    left = number

    def mortal(verb: str, write: _Write) -> _Write:
        async def write_or_die(store: object, key: str, *rest: Any) -> Any:
            nonlocal left
            is_it = kind_of(verb, key, rest[0] if rest else b"") == what
            left -= is_it
            is_last = is_it and not left
            if is_last and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await write(store, key, *rest)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return write_or_die

    for store in (LocalStore, CloudStore):
        for verb in ("create", "replace", "put", "delete"):
            setattr(store, verb, mortal(verb, getattr(store, verb)))


if __name__ == "__main__":
    side_refs._VERSIONS = VERSIONS
    if words := os.environ.get("BUCKETQ_TEST_DIE", "").split():
        make_mortal(words[0], words[1], int(words[2]))
    main()

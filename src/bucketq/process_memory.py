"""How processes of bucketq handle their memory: commands, brokers, drivers and executors on Spark.

These settings belong to the whole process, so only a program that is all bucketq changes them, or
one that has left them as they are.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

_PYTHON_THRESHOLDS = {(700, 10, 10), (2000, 10, 10), (2000, 10, 0)}
"""Those of Python 3.11, of 3.13, and of later ones."""
_OLDER_THRESHOLDS = (20, 50)
_USUAL_THRESHOLDS = gc.get_threshold()
"""Those that this process began with."""
_LARGEST_KEPT_BYTES = 31 << 20
"""Just below 32 MiB, the largest block that glibc keeps for reuse (DEFAULT_MMAP_THRESHOLD_MAX)."""


def collect_rarely(new_objects: int) -> None:
    """Let Python look for garbage only when there are so many new objects.

    Records of jobs die at once or live long, and are never garbage that has to be looked for.
    """
    gc.set_threshold(new_objects, *_OLDER_THRESHOLDS)


def collect_as_usual() -> None:
    """Undo ``collect_rarely``, before code runs that is not bucketq's."""
    gc.set_threshold(*_USUAL_THRESHOLDS)


def skip_last_collection() -> None:
    """Do not look for garbage when Python exits: the memory of the process is freed anyway.

    Modules and classes are thousands of objects that refer to each other, so that this takes a
    tenth of the time of a short command. Objects are still destroyed with the last reference.

    Not if gRPC was used: it ends its threads with the last of its objects, which refer to each
    other.
    """
    if "grpc" not in sys.modules:
        gc.freeze()


@contextmanager
def collecting_rarely(new_objects: int) -> Iterator[None]:
    """Do that for a while, unless the program has set thresholds itself."""
    before = gc.get_threshold()
    if before in _PYTHON_THRESHOLDS:
        collect_rarely(new_objects)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@lru_cache(maxsize=1)
def freeze_modules() -> None:
    """Exempt what was imported so far from collections, once in a process."""
    gc.collect()
    gc.freeze()


def keep_large_blocks() -> None:
    """Have ``malloc`` reuse large blocks.

    Each commit allocates one for its write. Until glibc has seen such a block freed, it maps fresh
    pages each time, and faulting them in costs more than filling them.
    """
    block = bytearray(_LARGEST_KEPT_BYTES)
    del block

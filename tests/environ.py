"""The environment of child processes: that of a newcomer's machine, whatever a developer has set.

With ``PYTHONUNBUFFERED``, for example, a program that forgets to flush passes every test.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

IS_ALL_REQUIRED = bool(os.environ.get("BUCKETQ_TEST_REQUIRE_ALL"))
"""Whether a test fails instead of being skipped if a server or Java is missing, as in `.ci/run`.

Not the variable ``CI``, which many machines set that cannot install them. It is read once, because
tests clear the environment of ``BUCKETQ_`` variables.
"""

SPILL_BYTES = os.environ.get("BUCKETQ_TEST_SPILL_BYTES", "")
"""If it is set, new queues spill that early (``early_spill``), in every process of the tests."""

_DROPPED = ("PYTHON", "BUCKETQ_")


def child_environ(**more: str) -> dict[str, str]:
    """Return this environment without variables of Python and bucketq, and with ``more``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    if SPILL_BYTES:
        kept["BUCKETQ_TEST_SPILL_BYTES"] = SPILL_BYTES
    return kept | {"PYTHONPATH": child_path()} | more


def child_path(*more: Path) -> str:
    """Return the ``PYTHONPATH`` of child processes that import bucketq, and what is in ``more``."""
    early = [ROOT / "tests" / "early_spill"] if SPILL_BYTES else []
    return os.pathsep.join(str(path) for path in [*early, ROOT / "src", *more])

"""Spark's home for tests: that of PySpark, without the zip file of PySpark's own Python code.

Spark's Python processes import from that file, which has no bytecode, so each of the hundreds that
tests start would compile PySpark again, for most of a second. Without the file they import the
installed package.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "spark"
_PARTS = ("bin", "jars")


def spark_home() -> Path:
    """Return the folder; make it if it is missing, even if another process does so too."""
    installed = Path(pyspark.__file__).parent
    home = BUILD / f"home-{blake2b(bytes(installed), digest_size=8).hexdigest()}"
    home.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        with suppress(FileExistsError):
            (home / part).symlink_to(installed / part)
    return home

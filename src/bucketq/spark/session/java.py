"""Finds Java, which Spark needs; Spark's own error does not say that it is missing or too old."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bucketq.errors import InvalidRequestError

OLDEST_JAVA = 17
"""The first Java that Spark 4 runs on."""
_ADVICE = (
    f"install Java {OLDEST_JAVA} or newer (on Debian or Ubuntu: apt install "
    f"openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME to its folder"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_S = 30
"""``java -version`` takes a tenth of a second, and many times that on a busy machine."""


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the Java that Spark will use. Raises ``InvalidRequestError`` if there is none."""
    home = environ.get("JAVA_HOME")
    if home:
        found: str | None = str(Path(home, "bin", "java"))
        where = f"JAVA_HOME ({home})"
    else:
        found = shutil.which("java", path=environ.get("PATH", ""))
        where = "PATH"
    if found is None or not Path(found).is_file():
        message = f"Spark needs Java, and there is none at {where}: {_ADVICE}"
        raise InvalidRequestError(message)
    version = _major_version(found)
    if version is None or version < OLDEST_JAVA:
        what = "cannot be run" if version is None else f"is Java {version}"
        message = f"Spark needs Java {OLDEST_JAVA} or newer, and {found} {what}: {_ADVICE}"
        raise InvalidRequestError(message)
    return Path(found)


def _major_version(java: str) -> int | None:
    """Run ``java -version``; return None if it fails."""
    try:
        ran = subprocess.run(  # noqa: S603 - the program that Spark is about to run itself
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found[1]) if found and ran.returncode == 0 else None

"""Where Java is: Spark runs on it, and says little where it is missing or too old."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bucketq.errors import InvalidRequestError

OLDEST = 17
"""The first Java that Spark 4 runs on."""
ADVICE = (
    f"install Java {OLDEST} or newer (on Debian or Ubuntu: apt install "
    f"openjdk-{OLDEST}-jre-headless), or set JAVA_HOME to where it is"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_S = 30


def find_java(environ: Mapping[str, str]) -> Path:
    """The Java that Spark will use. Raises ``InvalidRequestError`` that tells what to do."""
    home = environ.get("JAVA_HOME")
    if home:
        found: str | None = str(Path(home, "bin", "java"))
        where = f"JAVA_HOME ({home})"
    else:
        found = shutil.which("java", path=environ.get("PATH", ""))
        where = "PATH"
    if found is None or not Path(found).is_file():
        message = f"Spark needs Java, and there is none at {where}: {ADVICE}"
        raise InvalidRequestError(message)
    version = _major_of(found)
    if version is None or version < OLDEST:
        what = "cannot be run" if version is None else f"is Java {version}"
        message = f"Spark needs Java {OLDEST} or newer, and {found} {what}: {ADVICE}"
        raise InvalidRequestError(message)
    return Path(found)


def _major_of(java: str) -> int | None:
    """Ask a Java for its version; None where it does not tell."""
    try:
        ran = subprocess.run(  # noqa: S603 - the program that Spark is about to run itself
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found[1]) if found and ran.returncode == 0 else None

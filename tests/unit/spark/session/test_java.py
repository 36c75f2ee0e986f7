"""Java is found, or the error says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.spark.session.java import find_java


def java(folder: Path, says: str, status: int = 0) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = java(tmp_path / "home", 'openjdk version "21.0.1" 2023-10-17')
    path = java(tmp_path / "path", 'openjdk version "17.0.2" 2022-01-18')
    environ = {"PATH": str(path.parent)}
    assert find_java(environ) == path
    assert find_java({**environ, "JAVA_HOME": str(tmp_path / "home")}) == home


@pytest.mark.parametrize(
    ("says", "status", "message"),
    [
        ('java version "1.8.0_392"', 0, "is Java 8"),
        ('openjdk version "11.0.21" 2023-10-17', 0, "is Java 11"),
        ("no such library", 1, "cannot be run"),
    ],
)
def test_a_java_that_is_too_old_or_broken_is_named(
    tmp_path: Path, says: str, status: int, message: str
) -> None:
    path = java(tmp_path, says, status)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        find_java({"PATH": str(path.parent)})
    assert str(path) in str(caught.value)
    assert "openjdk-17-jre-headless" in str(caught.value)


def test_if_there_is_no_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="none at PATH: install Java 17"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(InvalidRequestError, match="none at JAVA_HOME"):
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})

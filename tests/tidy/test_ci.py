"""``.ci/run`` tests a change as on a newcomer's machine, and skips nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.environ import ROOT

RUN = ROOT / ".ci" / "run"
MAKE = '#!/bin/sh\necho "make $*"\nenv\n'


def run(folder: Path, **environ: str) -> list[str]:
    """Run a copy of the script with a ``make`` that prints its environment."""
    (folder / ".ci").mkdir()
    script = folder / ".ci" / "run"
    script.write_bytes(RUN.read_bytes())
    make = folder / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    ran = subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/nowhere"} | environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return ran.stdout.splitlines()


def test_checks_come_first_and_tests_last(tmp_path: Path) -> None:
    lines = run(tmp_path)
    assert [line for line in lines if line.startswith("make ")] == ["make check", "make test"]


def test_no_variable_of_a_developer_reaches_the_tests(tmp_path: Path) -> None:
    lines = run(tmp_path, PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", CI="true", EDITOR="vi")
    assert not [line for line in lines if line.startswith(("PYTHON", "CI=", "EDITOR="))]


def test_what_installing_packages_needs_is_kept(tmp_path: Path) -> None:
    environ = {
        "PIP_INDEX": "https://example.org/a b",
        "npm_config_registry": "https://example.org",
        "https_proxy": "http://proxy.example.org",
        "SSL_CERT_FILE": "/certificates.pem",
        "JAVA_HOME": "/java",
    }
    lines = run(tmp_path, **environ)
    for name, value in environ.items():
        assert lines.count(f"{name}={value}") == 2, name


def test_a_server_that_is_missing_fails_the_tests(tmp_path: Path) -> None:
    assert run(tmp_path).count("BUCKETQ_TEST_REQUIRE_ALL=1") == 2


def test_no_other_file_asks_for_the_variable_ci() -> None:
    asked = ('"CI"', "$CI", "$(CI)", "${CI}")
    paths = [ROOT / "Makefile", RUN, *ROOT.glob("tools/*.*"), *ROOT.glob("tests/**/*.py")]
    found = [str(path) for path in paths if any(word in path.read_text("utf-8") for word in asked)]
    assert found == [__file__]

"""What is released: a wheel and a source archive that work without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import bucketq
from tests.environ import ROOT, SPILL_BYTES, child_environ

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [
    name.rpartition(" ")[2]
    for name in PROJECT["classifiers"]
    if name.startswith("Programming Language :: Python :: 3.")
]
NOT_OPTIONS = {"all", "dev", "spec"}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both files, built as for a release."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(released: Path) -> Path:
    (found,) = released.glob("*.whl")
    return found


def find_python(version: str) -> str | None:
    """Return an interpreter, from the path or from pyenv; None: there is none here."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return str(installed[-1]) if installed else shutil.which(f"python{version}")


def test_both_have_the_version_of_the_project(released: Path) -> None:
    version = PROJECT["version"]
    assert bucketq.__version__ == version
    names = {path.name for path in released.iterdir()}
    assert names == {f"bucketq-{version}-py3-none-any.whl", f"bucketq-{version}.tar.gz"}


def test_a_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    sources = (ROOT / "src").rglob("*")
    wanted = {str(path.relative_to(ROOT / "src")) for path in sources if path.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name}
    assert "bucketq/py.typed" in wanted
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_a_source_archive_has_what_builds_and_tests_it(released: Path) -> None:
    (archive,) = released.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        tops = {name.split("/")[1] for name in opened.getnames()}
    wanted = {"src", "tests", "docs", "pyproject.toml", "Makefile", "constraints.txt", "LICENSE"}
    assert wanted <= tops
    assert not tops & {"build", ".venv", ".git"}


def test_all_means_every_extra_that_users_can_choose() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = everything.removeprefix("bucketq[").removesuffix("]").split(",")
    assert named == sorted(set(extras) - NOT_OPTIONS)


@pytest.mark.skipif(bool(SPILL_BYTES), reason="what makes queues deep imports modules itself")
def test_the_core_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """The wheel comes before the checkout, which is installed here as well."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import bucketq; assert bucketq.__file__.startswith(sys.argv[1]), bucketq.__file__\n"
        "with bucketq.connect_sync(sys.argv[2], mode='direct') as queue:\n"
        "    queue.push('hello', {'a': 1}); (job,) = queue.claim(); queue.complete(job)\n"
        "    print(job.payload)\n"
    )
    url = (tmp_path / "queue.json").as_uri()
    command = [sys.executable, "-c", program, str(wheel), url]
    ran = subprocess.run(
        command, cwd=tmp_path, env=child_environ(), capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "{'a': 1}\n", "")


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", PYTHONS)
def test_it_installs_and_runs_on(version: str, wheel: Path, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")

    def run(*words: object, **environ: str) -> str:
        ran = subprocess.run(
            list(map(str, words)),
            cwd=tmp_path,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    run(python, "-m", "venv", "fresh")
    pins = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    run("fresh/bin/python", "-m", "pip", "install", "-q", f"{wheel}[broker,cli]", **pins)
    assert run("fresh/bin/bucketq", "--version").split() == ["bucketq", PROJECT["version"]]
    url = (tmp_path / "queue.json").as_uri()
    run("fresh/bin/bucketq", "create", url)
    job_id = run("fresh/bin/bucketq", "push", url, "hello", '{"a":1}').strip()
    assert job_id in run("fresh/bin/bucketq", "ls", url)

"""Importing the worker that the command line names, and the errors if there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bucketq.cli.worker_import import find_worker, parse_target, source_folder
from bucketq.errors import InvalidRequestError

WORKER = """
import bucketq

{name} = bucketq.Worker()


@{name}.handler("{kind}")
async def handle() -> None: ...
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with modules; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in set(sys.modules) - before:
        # No others: bucketq imports its modules when they are used, and keeps what it has found.
        if any(str(tmp_path) in place for place in places(sys.modules[name])):
            del sys.modules[name]


def places(module: ModuleType) -> list[str]:
    """The file of a module, or the folders of a package."""
    return [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]


def write(path: Path, *, name: str = "worker", kind: str = "email") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.read_text() if path.exists() else "")
    with path.open("a") as file:
        file.write(WORKER.format(name=name, kind=kind))


def kinds(word: str) -> list[str]:
    return list(find_worker(parse_target(word)).handlers)


def refusal(word: str) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        find_worker(parse_target(word))
    return str(refused.value)


def test_a_worker_is_found_by_module_by_dotted_module_and_by_file(folder: Path) -> None:
    write(folder / "lone_tasks.py", name="mine")
    write(folder / "lone_shop" / "__init__.py", kind="whole")
    write(folder / "lone_shop" / "tasks.py", kind="part")
    assert kinds("lone_tasks:mine") == kinds("lone_tasks.py:mine") == ["email"]
    assert kinds("lone_tasks") == kinds("lone_tasks.py") == ["email"]
    assert kinds("lone_shop.tasks:worker") == kinds("lone_shop/tasks.py") == ["part"]
    assert kinds("lone_shop") == kinds("lone_shop/__init__.py:worker") == ["whole"]


def test_a_file_elsewhere_is_imported_with_its_neighbours(folder: Path) -> None:
    write(folder / "away" / "far_base.py")
    (folder / "away" / "far_tasks.py").write_text("from far_base import worker\n")
    assert kinds("away/far_tasks.py:worker") == ["email"]
    assert kinds(str(folder / "away" / "far_tasks.py")) == ["email"]


def test_among_several_workers_the_one_called_worker_is_chosen(folder: Path) -> None:
    write(folder / "many_tasks.py", name="other", kind="other")
    write(folder / "many_tasks.py", name="worker", kind="meant")
    assert kinds("many_tasks") == ["meant"]
    assert kinds("many_tasks:other") == ["other"]


def test_one_worker_under_two_names_is_the_only_one(folder: Path) -> None:
    write(folder / "twin_tasks.py", name="first")
    with (folder / "twin_tasks.py").open("a") as file:
        file.write("second = first\n")
    assert kinds("twin_tasks") == ["email"]


def test_if_the_choice_is_ambiguous_the_error_names_all_workers(folder: Path) -> None:
    write(folder / "two_tasks.py", name="red", kind="red")
    write(folder / "two_tasks.py", name="blue", kind="blue")
    assert "two_tasks:red and two_tasks:blue" in refusal("two_tasks")
    assert "two_tasks:red and two_tasks:blue" in refusal("two_tasks:green")
    assert "not a bucketq.Worker" in refusal("two_tasks:bucketq")


def test_a_module_without_a_worker_or_without_handlers_is_rejected(folder: Path) -> None:
    (folder / "bare_tasks.py").write_text("import bucketq\n")
    assert "has no bucketq.Worker" in refusal("bare_tasks")
    (folder / "idle_tasks.py").write_text("import bucketq\nworker = bucketq.Worker()\n")
    assert "no handlers" in refusal("idle_tasks:worker")


@pytest.mark.parametrize(
    "word", ["", ":", "tasks:", ":worker", "a b", "s3://bucket/q.json", "a..b"]
)
def test_a_word_that_does_not_name_a_worker_is_rejected(word: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"module:worker|no file"):
        parse_target(word)


def test_a_missing_module_is_distinguished_from_a_missing_dependency(folder: Path) -> None:
    assert f"no module 'absent_tasks', neither in {folder}" in refusal("absent_tasks:worker")
    (folder / "poor_tasks.py").write_text("import absent_library\n")
    told = refusal("poor_tasks:worker")
    assert "importing poor_tasks raises an error" in told
    assert "No module named 'absent_library'" in told
    with pytest.raises(InvalidRequestError, match=r"no file absent_tasks\.py"):
        parse_target("absent_tasks.py:worker")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def handle(:\n", "SyntaxError"),
        ("def make():\n    return 1 / 0\nmake()\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "ends the process"),
    ],
)
def test_the_traceback_of_an_error_in_the_module_has_only_its_own_lines(
    folder: Path, source: str, said: str
) -> None:
    (folder / "bad_tasks.py").write_text(source)
    told = refusal("bad_tasks:worker")
    assert said in told.splitlines()[0]
    files = [line.split('"')[1] for line in told.splitlines() if line.startswith("  File ")]
    assert files
    assert set(files) == {str(folder / "bad_tasks.py")}


def test_a_file_with_the_name_of_another_module_is_rejected(folder: Path) -> None:
    write(folder / "logging.py")
    assert "another module called logging" in refusal("logging.py:worker")


def test_the_source_of_a_module_is_its_directory_or_its_package(folder: Path) -> None:
    write(folder / "near_tasks.py")
    write(folder / "near_shop" / "__init__.py")
    write(folder / "near_shop" / "inner" / "tasks.py")
    assert source_folder(parse_target("near_tasks:worker")) == folder
    assert source_folder(parse_target("near_shop.inner.tasks")) == folder / "near_shop"
    assert source_folder(parse_target("near_shop/inner/tasks.py")) == folder / "near_shop" / "inner"
    assert source_folder(parse_target("missing_tasks")) == folder
    assert not {"near_tasks", "near_shop"} & set(sys.modules)

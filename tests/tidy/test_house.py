"""The rules of the house that no linter knows, as tests.

A rule here has to be mechanical: whoever breaks it is told the file, the line
and the limit, and needs nobody's opinion to mend it.
"""

import ast
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "bucketq"
SIMULATOR = ROOT / "simulator"

FILE_LINES_MAX = 450
GENERATED = {"blocking_queue.py"}
"""Written by a tool, and as long as there are verbs."""
FUNCTION_LINES_MAX = 70
FOLDER_FILES_MAX = 25
LEVELS_MAX = 3
"""A class, what it varies, and one part that has its own file."""

# Names that say where code was put, not what it is.
EMPTY_NAMES = re.compile(r"_*(utils?|helpers?|managers?|common)")

# The seam of a package, and what Python names by itself. Commands are named as users type them.
SHARED_NAMES = {"base.py", "__init__.py", "__main__.py"}

# Each pattern is written so that it does not match its own source.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
HOME_DIRECTORY = re.compile(r"(?<![\w.*-])/(?:(?:home|Users)/\w|root/)")
REGISTRY = re.compile(r"index[-]url|registry[.]npmjs")

# Words that hide who does what; CONTRIBUTING.md says what to write instead.
VAGUE_WORDS = re.compile(
    r"\b(?:[Ww]hoever|[Ss]omebody|[Ee]verybody|[Nn]obody|tells?|told|bears?|goes on with)\b"
)

# ``package.module`` in a docstring or comment. Files and settings of Spark look alike.
DOTTED_NAME = re.compile(r"``(?:bucketq\.)?(\w+(?:\.\w+)+)``")
NOT_A_MODULE = re.compile(r"queue\.json|\w+\.proto|spark\.sql\..*")

NOT_OURS = {"build", "dist", "node_modules", "__pycache__"}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        place(path) for path in modules() if not (ast.get_docstring(parsed(path)) or "").strip()
    ]
    assert not silent, f"give these modules a docstring: {silent}"


def test_no_module_is_too_long_to_read_in_one_sitting() -> None:
    long = [
        f"{place(path)}: {count} lines"
        for path in [*modules(), *other_modules()]
        if (count := len(path.read_text("utf-8").splitlines())) > FILE_LINES_MAX
        and path.name not in GENERATED
    ]
    assert not long, f"split these modules by topic, {FILE_LINES_MAX} lines are the limit: {long}"


def test_no_folder_has_more_files_than_can_be_looked_through() -> None:
    counts = Counter(place(path.parent) for path in modules())
    large = {folder: count for folder, count in counts.items() if count > FOLDER_FILES_MAX}
    assert not large, f"group these, {FOLDER_FILES_MAX} files are the limit: {large}"


def test_no_function_is_too_long_to_see_at_once() -> None:
    long = [
        f"{place(path)}:{node.lineno} {node.name}: {count} lines"
        for path in modules()
        for node in functions(path)
        if (count := line_count(node)) > FUNCTION_LINES_MAX
    ]
    assert not long, f"split these functions, {FUNCTION_LINES_MAX} lines are the limit: {long}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = [
        place(path)
        for path in PACKAGE.rglob("*")
        if (path.is_dir() or path.suffix == ".py") and EMPTY_NAMES.fullmatch(path.stem)
    ]
    assert not empty, f"name these after what they do: {empty}"


def test_no_two_files_or_classes_share_a_name() -> None:
    """A name leads to one place, in the package and in the simulator."""
    files: dict[str, list[str]] = {}
    classes: dict[str, list[str]] = {}
    for path in modules():
        if path.name not in SHARED_NAMES and "commands" not in path.parts:
            files.setdefault(path.name, []).append(place(path))
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(place(path))
    shared = {name: found for name, found in {**files, **classes}.items() if len(found) > 1}
    assert not shared, f"give these different names: {shared}"


def test_no_class_stands_on_a_ladder_of_others() -> None:
    bases = {
        item.name: [base_name(base) for base in item.bases]
        for path in modules()
        for item in ast.walk(parsed(path))
        if isinstance(item, ast.ClassDef)
    }

    def levels(name: str) -> int:
        return 1 + max((levels(base) for base in bases[name] if base in bases), default=0)

    # What an error is, is a question of kinds: callers catch the kind that they can mend.
    high = {name for name in bases if not name.endswith("Error") and levels(name) > LEVELS_MAX}
    assert not high, f"let these classes hold what they use, not inherit it: {sorted(high)}"


def test_no_file_is_left_with_a_note_that_it_is_unfinished() -> None:
    found = occurrences(UNFINISHED)
    assert not found, f"finish these, or open an issue: {found}"


def test_no_file_names_a_home_directory() -> None:
    found = occurrences(HOME_DIRECTORY)
    assert not found, f"these paths exist on one machine only: {found}"


def test_no_file_names_a_package_registry() -> None:
    found = occurrences(REGISTRY)
    assert not found, f"which registry to use is for each machine to say: {found}"


def test_modules_that_a_docstring_or_comment_names_exist() -> None:
    stale = [
        f"{place(path)}:{number}: {name}"
        for path in modules()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        for name in DOTTED_NAME.findall(line)
        if not NOT_A_MODULE.fullmatch(name) and not is_there(name)
    ]
    assert not stale, f"say where these are now: {stale}"


def test_documents_name_the_actor_and_use_ordinary_verbs() -> None:
    # Decisions are history, and the API page repeats docstrings.
    history = {*ROOT.glob("docs/adr/*.md"), ROOT / "docs" / "reference" / "api.md"}
    documents = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")} - history
    vague = [
        f"{place(path)}:{number}: {found[0]}"
        for path in sorted(documents)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if (found := VAGUE_WORDS.search(re.sub("`[^`]*`", "", line)))
    ]
    assert not vague, f"name the actor, and use the ordinary verb: {vague}"


def modules() -> list[Path]:
    """All modules of the package and the simulator but those that a tool has generated."""
    found = sorted(
        path
        for folder in (PACKAGE, SIMULATOR)
        for path in folder.rglob("*.py")
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
    )
    assert found, f"no modules under {PACKAGE}: has the package moved?"
    return found


def other_modules() -> list[Path]:
    """All modules that are not part of the package or the simulator, but read as much."""
    folders = ("tests", "benchmarks", "examples", "tools")
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert found, f"no tests or benchmarks under {ROOT}"
    return found


def is_there(name: str) -> bool:
    """Whether a dotted name is a file or in a package, or begins with neither."""
    if name.endswith(".py"):
        return name in {path.name for path in modules()}
    folder = PACKAGE
    for part in name.split("."):
        if not (folder / part).is_dir():
            break
        folder /= part
    else:
        return True
    # A package can share its name with a value, as in ``worker.state``.
    return folder == PACKAGE or (folder / f"{part}.py").is_file() or part in defined_in(folder)


@cache
def defined_in(folder: Path) -> set[str]:
    """What the modules of a package define; ``testing`` has more methods of stores."""
    paths = [*folder.rglob("*.py"), *(PACKAGE / "testing").glob("*.py")]
    return {node.name for path in paths for node in functions(path)}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def base_name(base: ast.expr) -> str:
    """The name of a base class, without its module and its parameters."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def line_count(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def occurrences(pattern: re.Pattern[str]) -> list[str]:
    """Where the pattern occurs in the text files of the project."""
    return [
        f"{place(path)}:{number}: {line.strip()[:80]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def texts() -> Iterator[tuple[Path, str]]:
    for path in tracked() or walked():
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield path, data.decode("utf-8", errors="replace")


def tracked() -> list[Path]:
    """The files that git knows; none where there is no git or no checkout."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [ROOT / name for name in listing.split("\0") if name]


def walked() -> Iterator[Path]:
    """The files of an unpacked release, without what was built or cached in it."""
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in NOT_OURS and (name == ".ci" or not name.startswith("."))
        )
        yield from (Path(folder, name) for name in sorted(names))


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()

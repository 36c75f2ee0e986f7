"""Write ``docs/reference/api.md`` from the code: public names, signatures and docstrings.

Run it with ``make reference``; a test compares the page with what this program would write. Names
are grouped by hand below. An exported name that is in no group is an error, so none is forgotten.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from types import FunctionType

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "api.md"

GROUPS: dict[str, dict[str, list[str]]] = {
    "bucketq": {
        "Connecting": [
            "connect",
            "connect_sync",
            "list_queues",
            "FoundQueue",
            "open_archive",
            "Tls",
        ],
        "Queues": ["Queue", "BlockingQueue", "Archive"],
        "Jobs": [
            "Job",
            "JobId",
            "JobSpec",
            "PushOptions",
            "JobPage",
            "Backoff",
            "Failure",
            "Progress",
            "LeaseRef",
            "Pulse",
        ],
        "Batches": ["Batch", "BlockingBatch", "BatchInfo", "BatchCounts"],
        "Schedules": ["Schedule", "ScheduleOptions"],
        "Limits": ["LimitInfo"],
        "Handlers": ["Worker", "Context", "Retry", "Snooze", "GiveUp", "JobCancelled"],
        "Numbered batches": [
            "ConsumerState",
            "SettledJob",
            "BatchState",
            "JobBatch",
            "ConsumerInfo",
        ],
        "The state of a queue": [
            "Settings",
            "Stats",
            "StatsSample",
            "CommitStats",
            "Snapshot",
            "TokenInfo",
            "WorkerInfo",
            "AuditEntry",
        ],
        "History": ["Change", "ChangeRequest", "JobChange", "HistoryRange"],
    },
    "bucketq.testing": {},
    "bucketq.spark": {},
}
"""The names of each module by section; a module without sections lists its names in order."""

INTRODUCTION = """# API

Every public name, generated from the code by `make reference`. Names that are not on this page are
internal and can change in any version. Durations are numbers of seconds; if a signature says
`timedelta`, one is accepted too. [Errors](errors.md) and [settings](settings.md) have pages of
their own.

`connect` returns a `Queue` whose methods are coroutines; `connect_sync` returns a `BlockingQueue`
with the same methods without `await`. Methods that take `request` can be
[retried safely](../guides/safe-retries.md).
"""

LINE_CHARACTERS = 100


def exports(module: str) -> list[str]:
    """Return the public names of a module, without errors, which have a page of their own."""
    found = importlib.import_module(module)
    errors = vars(importlib.import_module("bucketq.errors"))
    return [name for name in found.__all__ if not (module == "bucketq" and name in errors)]


_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ITEM = re.compile(r"    (\*{0,2}\w+): (.*)")


def described(documented: object) -> str:
    """Return a docstring as Markdown; items of its sections become a list."""
    lines: list[str] = []
    section = ""
    for line in (inspect.getdoc(documented) or "").splitlines():
        if found := _SECTION.match(line):
            section = found[1]
            lines += [] if section in {"Args", "Attributes"} else [f"{section}:", ""]
        elif section and (item := _ITEM.match(line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif section and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            section = section if not line else ""
            lines.append(line)
    return re.sub(r"``(.+?)``", r"`\1`", "\n".join(lines).strip())


class Source:
    """The source of a class or function, for signatures and the docstrings of fields."""

    def __init__(self, documented: type | object) -> None:
        """Parse the module in which it is defined."""
        assert inspect.isclass(documented) or inspect.isfunction(documented), documented
        node = ast.parse(dedent(inspect.getsource(documented))).body[0]
        assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        self.node = node

    def fields(self) -> Iterator[tuple[str, str]]:
        """Return annotated public fields and the strings below them."""
        body = list[ast.stmt]()
        for each in self.node.body:  # What type checkers see is what is documented.
            body += each.body if isinstance(each, ast.If) else [each]
        for index, statement in enumerate(body):
            if not isinstance(statement, ast.AnnAssign) or not isinstance(
                statement.target, ast.Name
            ):
                continue
            name = statement.target.id
            if name.startswith("_") or "ClassVar" in ast.unparse(statement.annotation):
                continue
            after = body[index + 1] if index + 1 < len(body) else None
            comment = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                comment = " ".join(str(after.value.value).split())
            signature = ast.unparse(statement)
            yield signature, re.sub(r"``(.+?)``", r"`\1`", comment)


def signature_of(name: str, function: object) -> str:
    """Return how a function is called, with the annotations as they are written."""
    node = Source(inspect.unwrap(function)).node  # type: ignore[arg-type]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = node.args
    for group in (arguments.posonlyargs, arguments.args):
        if group and group[0].arg in {"self", "cls"}:
            del group[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return wrapped(f"{prefix}{name}", arguments, returns)


def wrapped(name: str, arguments: ast.arguments, returns: str) -> str:
    """Return a signature on one line, or with one line for each argument if it is long."""
    flat = f"{name}({ast.unparse(arguments)}){returns}"
    if len(flat) <= LINE_CHARACTERS:
        return flat
    parts: list[str] = []
    depth, begin = 0, 0
    text = ast.unparse(arguments)
    for index, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[begin:index].strip())
            begin = index + 1
    parts.append(text[begin:].strip())
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def block(signature: str) -> str:
    """Return a signature as a block; it is not Python that could be run."""
    return f"```\n{signature}\n```\n"


def is_ours(function: FunctionType) -> bool:
    """Return whether a function is written in the package, and not generated or inherited."""
    return Path(function.__code__.co_filename).is_relative_to(ROOT / "src")


def members(name: str, documented: type) -> Iterator[str]:
    """Write the public properties and methods of a class, in the order of the source."""
    found: dict[str, object] = {}
    for base in reversed(documented.__mro__):
        found |= {each: member for each, member in vars(base).items() if each[0] != "_"}
    properties = [
        f"- `{each}`: " + re.sub(r"\n+", "\n  ", described(member))
        for each, member in found.items()
        if isinstance(member, property | cached_property)
    ]
    if properties:
        yield "\n".join(properties) + "\n"
    for each, member in found.items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function) and is_ours(function):
            yield f"#### `{name}.{each}`\n"
            yield block(signature_of(each, function))
            yield f"{described(function)}\n"


def entry(module: str, name: str) -> Iterator[str]:
    """Write one public name."""
    documented = getattr(importlib.import_module(module), name)
    yield f"### `{name}`\n"
    if inspect.isclass(documented):
        constructor = vars(documented).get("__init__")
        is_made_here = name in {"Archive", "BlockingQueue", "Context", "Job"}
        if inspect.isfunction(constructor) and is_ours(constructor) and not is_made_here:
            yield block(signature_of(name, constructor).removesuffix(" -> None"))
        yield f"{described(documented)}\n"
        if name == "Settings":
            yield "Its fields are on [a page of their own](settings.md).\n"
        elif "Attributes:" in (documented.__doc__ or ""):
            pass  # The docstring has them.
        elif found := list(Source(documented).fields()):
            yield "\n".join(f"- `{field}`: {text}".rstrip(": ") for field, text in found) + "\n"
        if name == "BlockingQueue":
            yield "Its methods are those of `Queue`, without `await`, and `close`.\n"
        else:
            yield from members(name, documented)
    else:
        yield block(signature_of(name, documented))
        yield f"{described(documented)}\n"


def page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for module, sections in GROUPS.items():
        names = exports(module)
        if not sections:
            parts.append(f"## {module}\n")
            parts.append(f"{described(importlib.import_module(module))}\n")
            sections = {"": names}  # noqa: PLW2901 - a module without sections is one section
        listed = [name for group in sections.values() for name in group]
        if sorted(listed) != sorted(names):
            difference = sorted(set(listed) ^ set(names))
            message = f"put these names of {module} into GROUPS of tools/reference.py: {difference}"
            raise SystemExit(message)
        for title, group in sections.items():
            if title:
                parts.append(f"## {title}\n")
            for name in group:
                parts.extend(entry(module, name))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")

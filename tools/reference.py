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
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import FunctionType

from msgspec import Raw

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

TYPES = {
    "bucketq.queue.arguments": "Duration Held Names",
    "bucketq.queue.push_options": "After",
    "bucketq.queue.large.side_content": "FilePayload",
    "bucketq.queue.large.payload_stream": "PayloadStream",
    "bucketq.queue.promised_jobs": "PromisedJobId",
    "bucketq.model.base": "NewJob Replacement UniqueScope",
    "bucketq.model.records": "BrokerRecord Encoding JobRecord OnFailed Status",
    "bucketq.model.tokens": "Right",
    "bucketq.model.job_batches": "BatchStatus CancelledJobs",
    "bucketq.model.schedules": "Missed SetAnswer",
    "bucketq.model.operations": "CancelAnswer",
    "bucketq.client.connect_arguments": "Launch Mode",
    "bucketq.client.connect": "Options UnopenedQueue",
    "bucketq.client.blocking": "UnopenedBlockingQueue",
    "bucketq.store.base": "ObjectInfo ObjectStore StoredObject",
    "bucketq.store.url": "CredentialProvider",
    "bucketq.worker.attempt": "End",
    "bucketq.worker.counters": "WorkerCounters",
    "bucketq.worker.handlers": "Handler Place",
    "bucketq.worker.lifespan": "Hook",
    "bucketq.worker.middleware": "Middleware",
    "bucketq.worker.typed_push": "Registers",
    "bucketq.testing.simulated_store": "Operation StoreCommit",
    "bucketq.testing.store_link": "Direction",
    "bucketq.spark.archive.archive_report": "ArchiveReport FailureReason JobNumbers ReportLine",
    "bucketq.spark.archive.compact_archive": "CompactedArchive OnProgress",
    "bucketq.spark.archive.replay_jobs": "ReplayedJobs",
    "bucketq.spark.queue_access": "QueueAccess",
}
"""The types of signatures that have no entry of their own, by module."""

MADE_HERE = frozenset(
    {
        *("Archive", "Batch", "BlockingBatch", "BlockingQueue", "Context", "Job", "Process"),
        *("Queue", "StoreLink"),
    }
)
"""Classes that users do not call: functions and methods return them."""

INTERNAL = {
    "Context": "end follow_ups note relay take_follow_ups use",
    "Job": "lose_payload",
    "SimulatedStore": "count create delete get get_if_changed get_range page put replace severed",
    "WorkerCounters": "on_end",
}
"""Members that other parts of bucketq use, and users do not."""

INTRODUCTION = """# API

Every public name, generated from the code by `make reference`. Names that are not on this page are
internal and can change in any version. Durations are numbers of seconds; if a signature says
`timedelta` or `Duration`, a `timedelta` is accepted too. Other types that signatures name are
[at the end](#types-in-signatures). [Errors](errors.md) and [settings](settings.md) have pages of
their own.

`connect` returns a `Queue` whose methods are coroutines; `connect_sync` returns a `BlockingQueue`
with the same methods without `await`. Methods that take `request` can be
[retried safely](../guides/safe-retries.md).
"""

ABOUT_TYPES = """They are here to be read: `bucketq` does not export them.
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
    text = re.sub(r"(?m)^::\n\n|:(?=:$)", "", "\n".join(lines).strip())  # Before an example.
    return re.sub(r"``(.+?)``", r"`\1`", text)


class Source:
    """The source of a class or function, for signatures and the docstrings of fields."""

    def __init__(self, documented: type | object) -> None:
        """Parse the module in which it is defined."""
        assert inspect.isclass(documented) or inspect.isfunction(documented), documented
        node = ast.parse(dedent(inspect.getsource(documented))).body[0]
        assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        self.node = node
        self.module = documented.__module__

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
            signature = with_values(ast.unparse(statement), self.module)
            yield signature, re.sub(r"``(.+?)``", r"`\1`", comment)


def with_values(signature: str, module: str) -> str:
    """Replace constants of a module, which users cannot see, by their values."""
    names = vars(importlib.import_module(module))
    known = re.sub(r"(?<=[= ])[A-Z_]{5,}\b", lambda found: shown(names[found[0]]), signature)
    known = known.replace("field(default_factory=dict)", "{}")
    return re.sub(r"\b(Hook|Middleware)T\b", r"\1", known)


def shown(value: object) -> str:
    """Return a default as a user would write it."""
    if isinstance(value, Raw):
        return f"Raw({bytes(value)!r})"
    return repr(value).removeprefix("datetime.")


def signature_of(name: str, function: object) -> str:
    """Return how a function is called, with the annotations as they are written."""
    source = Source(inspect.unwrap(function))  # type: ignore[arg-type]
    node = source.node
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = node.args
    for group in (arguments.posonlyargs, arguments.args):
        if group and group[0].arg in {"self", "cls"}:
            del group[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return with_values(wrapped(f"{prefix}{name}", arguments, returns), source.module)


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
    for each in INTERNAL.get(name, "").split():
        del found[each]
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
        if inspect.isfunction(constructor) and is_ours(constructor) and name not in MADE_HERE:
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


def alias(module: str, name: str) -> str:
    """Describe a type that is not a class: what it stands for, and the string below it."""
    body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    for statement, after in pairwise(body):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            comment = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                comment = " " + " ".join(str(after.value.value).split())
            comment = re.sub(r"``(.+?)``", r"`\1`", comment)
            return f"- `{name}`: `{ast.unparse(statement.value).replace('ops.', '')}`.{comment}"
    raise SystemExit(f"{module} does not define {name}")


def types() -> Iterator[str]:
    """Describe the types of signatures that have no entry of their own."""
    found = {name: module for module, names in TYPES.items() for name in names.split()}
    for name in sorted(found):
        documented = getattr(importlib.import_module(found[name]), name)
        if not inspect.isclass(documented):
            yield alias(found[name], name)
            continue
        yield f"- `{name}`: {described(documented).partition(chr(10))[0]}"
        if name in {"Handler", "JobRecord", "NewJob", "Options", "PromisedJobId", "QueueAccess"}:
            continue  # They are described elsewhere, or made by bucketq alone.
        for field, text in Source(documented).fields():
            if field.partition(":")[0] not in INTERNAL.get(name, "").split():
                yield f"  - `{field}`: {text}".rstrip(": ")


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
    parts += ["## Types in signatures\n", ABOUT_TYPES, *types(), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")

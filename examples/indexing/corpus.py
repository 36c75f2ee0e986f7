"""Documents to search in: text that is on every machine that has this checkout.

- ``guides``: the sections of bucketq's README and of its documents in ``docs``
- ``code``: the docstrings of bucketq
- ``python``: the docstrings of the Python standard library, which are read and not imported
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from examples.indexing.wal import Document

NAMESPACES = ("guides", "code", "python")
ROOT = Path(__file__).resolve().parents[2]
_HEADING = re.compile(r"^#{1,4} +(.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LEFT_OUT = {
    *("distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages"),
    *("test", "tests", "tkinter", "turtledemo", "venv"),
}
"""Not the library itself, or hardly any text."""
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documents(namespace: str, limit: int | None = None) -> Iterator[Document]:
    """Return the documents of a namespace, always in the same order, each id once."""
    found = {"guides": _guides, "code": _code, "python": _python}[namespace]
    return islice(_once(found()), limit)


def _once(found: Iterator[Document]) -> Iterator[Document]:
    """Leave out items with the name of an earlier one, such as the setter of a property."""
    seen: set[str] = set()
    for document in found:
        if document.id not in seen:
            seen.add(document.id)
            yield document


def _guides() -> Iterator[Document]:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text("utf-8")
        # A comment in a script looks like a heading.
        masked = _FENCED.sub(lambda block: " " * len(block[0]), text)
        headings = list(_HEADING.finditer(masked))
        ends = [*(heading.start() for heading in headings[1:]), len(text)]
        for number, (heading, end) in enumerate(zip(headings, ends, strict=True)):
            body = text[heading.end() : end].strip()
            if body:
                title = heading[1].replace("`", "")
                yield Document(f"{name}#{number}", f"{name}: {title}", body)


def _code() -> Iterator[Document]:
    root = ROOT / "src"
    paths = sorted((root / "bucketq").rglob("*.py"))
    return _docstrings(root, [path for path in paths if not path.stem.endswith("_pb2")])


def _python() -> Iterator[Document]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        is_ours = parts[0].removesuffix(".py") in sys.stdlib_module_names
        if is_ours and _LEFT_OUT.isdisjoint(parts):
            paths.append(path)
    return _docstrings(root, paths)


def _docstrings(root: Path, paths: Sequence[Path]) -> Iterator[Document]:
    for path in paths:
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # Some files of the library are wrong on purpose.
        yield from _inside(tree, name)


def _inside(node: _Documented, name: str) -> Iterator[Document]:
    text = ast.get_docstring(node)
    if text:
        yield Document(name, name, text)
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _inside(child, f"{name}.{child.name}")

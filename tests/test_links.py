"""Links in the documents lead somewhere, and their fragments of Python name what exists.

Examples in the README and in the guides are run as well; fragments elsewhere cannot be, because
they lack a bucket, a cluster or a certificate.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.environ import ROOT

DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for path in ROOT.glob(pattern)
)

_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_LINE = re.compile(r"L(\d+)(?:-L\d+)?")


class Fragment(NamedTuple):
    """A block of Python in a document, and the blocks above it, whose names it may use."""

    where: str
    text: str
    above: str


def fragments() -> list[Fragment]:
    found = []
    for document in DOCUMENTS:
        text, above = document.read_text("utf-8"), ""
        for block in _FENCED.finditer(text):
            if block[2] == "python":
                line = text.count("\n", 0, block.start()) + 1
                body = "".join(each.removeprefix(block[1]) for each in block[3].splitlines(True))
                found.append(Fragment(f"{document.relative_to(ROOT)}-{line}", body, above))
                above += body
    return found


def anchors(document: Path) -> set[str]:
    """The fragments by which GitHub knows the headings of a document."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", document.read_text("utf-8"))):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("\\", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def broken_links(document: Path) -> Iterator[str]:
    text = _INLINE_CODE.sub("code", _FENCED.sub("", document.read_text("utf-8")))
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists():
            yield target
        elif fragment and path.suffix == ".md":
            if fragment not in anchors(path):
                yield target
        elif fragment:
            line = _LINE.fullmatch(fragment)
            if line is None or int(line[1]) > len(path.read_text("utf-8").splitlines()):
                yield target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_its_fragment_lead_somewhere(document: Path) -> None:
    assert list(broken_links(document)) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# One `code`, two\n## Same\n## Same\n```sh\n# no heading\n```\n"
        "[1](#one-code-two) [2](#same-1) [3](a.md#same) [4](https://example.org#x) `[5](no.md)`\n"
        "[6](#no-heading) [7](b.md) [8](#same-2)\n"
    )
    assert list(broken_links(document)) == ["#no-heading", "b.md", "#same-2"]


def undefined(fragment: Fragment) -> set[str]:
    """Names that a fragment uses, and neither it nor one above it defines."""
    bound = set(dir(builtins))
    used: set[str] = set()
    for text in (fragment.above, fragment.text):
        used.clear()  # Those of the last are asked for.
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    used.add(name)
                case ast.Name(id=name) | ast.arg(arg=name):
                    bound.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    bound.add(name)
                case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                    bound.add(name)
                case ast.alias(name=name, asname=alias):
                    bound.add(alias or name.partition(".")[0])
    return used - bound


def missing(fragment: Fragment) -> Iterator[str]:
    """What a fragment imports, or takes from the package, that is not there."""
    for node in ast.walk(ast.parse(fragment.text)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if not _is_module(each.name))
            case ast.ImportFrom(module=str(module), names=names):
                if not _is_module(module):
                    yield module
                elif module.partition(".")[0] == "bucketq":
                    found = importlib.import_module(module)
                    yield from (each.name for each in names if not hasattr(found, each.name))
            case ast.Attribute(value=ast.Name(id="bucketq"), attr=name):
                if not hasattr(importlib.import_module("bucketq"), name) and not _is_module(
                    f"bucketq.{name}"
                ):
                    yield f"bucketq.{name}"


def _is_module(name: str) -> bool:
    """Whether a module exists; of a package that is not installed, that is taken for granted."""
    if name.partition(".")[0] != "bucketq" and find_spec(name.partition(".")[0]) is None:
        return True
    return find_spec(name) is not None


@pytest.mark.parametrize("fragment", fragments(), ids=lambda fragment: fragment.where)
def test_a_fragment_of_python_uses_only_what_exists(fragment: Fragment) -> None:
    compile(fragment.text, fragment.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert undefined(fragment) == set()
    assert list(missing(fragment)) == []


def test_missing_imports_and_names_are_found() -> None:
    assert undefined(Fragment("", "bucketq.connect(url)", "url = 1")) == {"bucketq"}
    wrong = "import bucketq.nowhere\nfrom bucketq import nothing\nbucketq.none\nbucketq.Worker"
    assert list(missing(Fragment("", wrong, ""))) == ["bucketq.nowhere", "nothing", "bucketq.none"]

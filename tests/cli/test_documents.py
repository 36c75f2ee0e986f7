"""The documents and help texts match the command line."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tools.storage_cost import PRICES, table

from bucketq.cli.app import app
from bucketq.cli.command import help_of
from bucketq.cli.commands import DEFAULTS, GROUPS, SUBCOMMANDS, module_of
from bucketq.cli.commands.storage.doctor import GET_DOLLARS, PUT_DOLLARS
from bucketq.cli.terminal import exit_codes
from bucketq.cli.worker_import import parse_target
from tests.cli.console import COMMANDS, Console
from tests.environ import ROOT

CLI = ROOT / "docs" / "reference" / "cli.md"
OPERATIONS = ROOT / "docs" / "guides" / "operations.md"

_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_GROUP: Any = typer.main.get_command(app)


def command(name: str) -> Any:
    found = _GROUP
    for word in name.split():
        found = found.get_command(None, word)
    return found


def calls(text: str) -> list[list[str]]:
    """The calls of bucketq in a piece of shell, each as its words."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"[|;>]|\$\(|&&", line):
            if re.search(r"\bbucketq [a-z]", part):
                words = shlex.split(re.sub(r"^.*?\bbucketq ", "bucketq ", part).rstrip(") "))
                found.append(words[1:])
    return found


def name_in(words: list[str]) -> str:
    """The name of the command in a call."""
    if words[0] in DEFAULTS and words[1:2] and words[1] not in SUBCOMMANDS[words[0]]:
        return f"{words[0]} {DEFAULTS[words[0]]}"
    return " ".join(words[:2]) if words[0] in SUBCOMMANDS else words[0]


def check_call(words: list[str], *, has_variable: bool = False) -> None:
    """Check that a call names a command, options that it has, and a queue."""
    name = name_in(words)
    assert name in COMMANDS, words
    known = {option for param in command(name).params for option in param.opts}
    options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert options <= known, (words, options - known)
    names_queue = any("://" in word or "BUCKETQ_URL" in word for word in words) or len(words) == 1
    # It takes a worker first, which knows its queue.
    names_worker = name == "work" and parse_target(words[1].replace("/", ".").removesuffix(".py"))
    assert names_queue or names_worker or has_variable, words


@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", *ROOT.glob("docs/**/*.md")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_call_in_a_document_names_options_that_exist(document: Path) -> None:
    text = "".join(_BLOCK.findall(document.read_text("utf-8")))
    found = calls(text)
    assert len(found) > 10 or document not in {CLI, OPERATIONS}
    for words in found:
        check_call(words, has_variable="export BUCKETQ_URL=" in text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_examples(name: str) -> None:
    shown = {name_in(words) for words in calls("".join(_BLOCK.findall(CLI.read_text("utf-8"))))}
    assert name in shown
    text, examples = help_of(import_module(module_of(*name.split())).run.__doc__)
    assert text[0].isupper()
    assert "Args:" not in text
    found = calls(examples)
    assert any(name_in(words) == name for words in found)
    for words in found:
        check_call(words)


def test_the_help_of_a_command_shows_its_examples_as_they_are(console: Console) -> None:
    for name in COMMANDS:
        ran = console.ok(*name.split(), "--help")
        assert "\n  Examples:\n    " in ran.out, name
        assert "--json" in ran.out


def test_the_exit_codes_are_those_of_the_code(console: Console) -> None:
    text = CLI.read_text("utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert codes == set(exit_codes.MEANING)
    shown = console.ok("--help").out
    assert all(f"{code:>3}  {meaning}" in shown for code, meaning in exit_codes.MEANING.items())


def test_the_table_of_costs_follows_from_the_prices() -> None:
    text = OPERATIONS.read_text("utf-8")
    assert PRICES["S3"] == (PUT_DOLLARS, GET_DOLLARS)
    assert "\n".join(table()) in text, "python tools/storage_cost.py prints the new table"
    for name, reads in (("one by one, direct", 1), ("100 in a commit, by a broker", 0)):
        (line,) = [each for each in text.splitlines() if each.startswith(f"| {name} |")]
        commits, cost = (word.strip(" $").replace(",", "") for word in line.split("|")[2:4])
        assert float(cost) == round(int(commits) / 1000 * (PUT_DOLLARS + reads * GET_DOLLARS), 2)


@pytest.mark.parametrize("words", [(), *((name,) for name in SUBCOMMANDS)])
def test_help_lists_every_command_on_a_line_of_its_own(
    console: Console, words: tuple[str, ...]
) -> None:
    shown = console.run(*words, "--help", env={"COLUMNS": "80"}).out
    groups = {"commands": SUBCOMMANDS[words[0]]} if words else GROUPS
    for title, commands in groups.items():
        listed = shown.partition(f"\n{title.capitalize()}:\n")[2].partition("\n\n")[0]
        assert [line.split(maxsplit=1) for line in listed.splitlines()] == [
            [name, summary] for name, summary in commands.items()
        ]
    assert "\n  Examples:\n    bucketq " in shown


@pytest.mark.parametrize("name", [*COMMANDS, *SUBCOMMANDS])
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(name: str) -> None:
    words = name.split()
    module = import_module(module_of(*words))
    doc = module.__doc__ if name in SUBCOMMANDS else module.run.__doc__
    summaries = (
        SUBCOMMANDS[words[0]]
        if len(words) > 1
        else {name: summary for group in GROUPS.values() for name, summary in group.items()}
    )
    text, _ = help_of(doc)
    assert " ".join(text.split()).startswith(summaries[words[-1]])


def test_every_file_of_the_commands_is_a_command() -> None:
    folder = ROOT / "src" / "bucketq" / "cli" / "commands"
    found = {path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py")}
    expected = {Path(*module_of(*name.split()).split(".")[3:]) for name in COMMANDS}
    assert {path for path in found if path.name != "__init__"} == expected

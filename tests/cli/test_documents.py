"""What the documents and the help texts show of the command line is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from bucketq.cli import exits
from bucketq.cli.app import ARCHIVE_COMMANDS, COMMANDS, CONSUMER_COMMANDS, TOKEN_COMMANDS, app
from bucketq.cli.command import help_of
from bucketq.cli.doctor import PRICES
from bucketq.cli.find_worker import parse_target
from tests.cli.console import Console
from tests.environ import ROOT

CLI = ROOT / "docs" / "reference" / "cli.md"
OPERATIONS = ROOT / "docs" / "guides" / "operations.md"
FUNCTIONS = (
    COMMANDS
    | {f"archive {name}": function for name, function in ARCHIVE_COMMANDS.items()}
    | {f"token {name}": function for name, function in TOKEN_COMMANDS.items()}
    | {f"consumer {name}": function for name, function in CONSUMER_COMMANDS.items()}
)
NAMES = [*FUNCTIONS]

_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_GROUP: Any = typer.main.get_command(app)


def command(name: str) -> Any:
    found = _GROUP
    for word in name.split():
        found = found.commands[word]
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
    return " ".join(words[:2]) if words[0] in {"archive", "token", "consumer"} else words[0]


def check_call(words: list[str], *, has_variable: bool = False) -> None:
    """See that a call names a command, options that it has, and a queue."""
    name = name_in(words)
    assert name in NAMES, words
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


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_documented_with_examples(name: str) -> None:
    shown = {name_in(words) for words in calls("".join(_BLOCK.findall(CLI.read_text("utf-8"))))}
    assert name in shown
    text, examples = help_of(FUNCTIONS[name])
    assert text[0].isupper()
    assert "Args:" not in text
    found = calls(examples)
    assert any(" ".join(words).startswith(name) for words in found)
    for words in found:
        check_call(words)


def test_the_help_of_a_command_shows_its_examples_as_they_are(console: Console) -> None:
    for name in NAMES:
        ran = console.ok(*name.split(), "--help")
        assert "\n  Examples:\n    " in ran.out, name
        assert "--json" in ran.out


def test_the_exit_codes_are_those_of_the_code(console: Console) -> None:
    text = CLI.read_text("utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert codes == set(exits.MEANING)
    shown = console.ok("--help").out
    assert all(f"{code:>3}  {meaning}" in shown for code, meaning in exits.MEANING.items())


def test_the_table_of_costs_follows_from_the_prices() -> None:
    text = OPERATIONS.read_text("utf-8")
    price = PRICES["s3"]
    for commits in (3_000_000, 300_000, 30_000, 3_000):
        cost = commits / 1000 * (price.put + price.get)
        express = commits / 1000 * (0.00113 + 0.00003)
        assert f"| {commits:,} | ${cost:.2f} | ${max(express, 0.01):.2f} |" in text


@pytest.mark.parametrize("words", [(), ("archive",), ("token",), ("consumer",)])
def test_no_summary_of_a_command_is_cut(console: Console, words: tuple[str, ...]) -> None:
    shown = console.run(*words, "--help", env={"COLUMNS": "80"}).out
    listed = shown.partition("Commands:\n")[2].partition("\n\n")[0]
    commands = {
        (): COMMANDS,
        ("archive",): ARCHIVE_COMMANDS,
        ("token",): TOKEN_COMMANDS,
        ("consumer",): CONSUMER_COMMANDS,
    }[words]
    assert len(listed.splitlines()) >= len(commands)
    assert "..." not in listed
    assert "\n  Examples:\n    bucketq " in shown

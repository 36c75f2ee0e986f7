"""``bucketq`` and its commands, each of which is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main

import bucketq
from bucketq.cli.command import (
    QueueCommand,
    ReportingGroup,
    as_command,
    help_of,
)
from bucketq.cli.commands import GROUPS, SUBCOMMANDS, module_of
from bucketq.cli.terminal import exit_codes

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_EPILOG = """\
\b
Examples:
  bucketq push file:///srv/jobs/queue.json email '{"to": "ada@example.org"}'
  bucketq claim file:///srv/jobs/queue.json --kind email --json
  export BUCKETQ_URL=s3://bucket/jobs/queue.json; bucketq stats

\b
Environment, for brokers with TLS or tokens:
  BUCKETQ_TOKEN      the access token
  BUCKETQ_TLS_CA     CA certificates to verify brokers with (PEM)
  BUCKETQ_TLS_CERT   the client certificate, and BUCKETQ_TLS_KEY its key
  BUCKETQ_TLS_NAME   the name in the broker's certificate, if it is not its host
  BUCKETQ_NETWORKS   networks of trusted brokers, like 10.0.0.0/8,192.168.7.0/24
  BUCKETQ_INSECURE   1: send the token to other hosts in plaintext too

\b
Exit codes:
""" + "\n".join(f"  {code:>3}  {text}" for code, text in exit_codes.MEANING.items())


class _Commands(Mapping[str, Any]):
    """Commands by name; looking one up imports it."""

    def __init__(self, path: tuple[str, ...], names: list[str]) -> None:
        self._path = path
        self._names = names
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = _load(*self._path, name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class CommandGroup(ReportingGroup):
    """``bucketq`` itself, or a command with commands of its own."""

    def __init__(self, **attributes: Any) -> None:
        """List the commands; none is imported yet."""
        super().__init__(**attributes)
        path = (self.name,) if self.name else ()
        self._sections = {"commands": SUBCOMMANDS[self.name]} if self.name else GROUPS
        names = [name for commands in self._sections.values() for name in commands]
        self.commands: Mapping[str, Any] = _Commands(path, names)  # type: ignore[assignment]  # typer reads it only

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of --help."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the summaries of the commands, group by group."""
        del ctx
        width = max(map(len, self.commands))
        for title, commands in self._sections.items():
            with formatter.section(title.capitalize()):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in commands.items()])


def _load(*words: str) -> Any:
    """Import a command, and build it."""
    module = import_module(module_of(*words))
    name = words[-1]
    if name in SUBCOMMANDS:
        group = _group(module.__doc__, name=name, add_completion=False)
        group.callback()(lambda: None)
        return typer.main.get_command(group)
    text, examples = help_of(module.run.__doc__)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=QueueCommand, help=text, epilog=examples, context_settings=_SETTINGS)(
        as_command(module.run)
    )
    return typer.main.get_command(single)


def _group(doc: str | None, *, epilog: str = "", **options: Any) -> typer.Typer:
    text, examples = help_of(doc)
    return typer.Typer(
        cls=CommandGroup,
        help=text,
        epilog=epilog or examples,
        context_settings=_SETTINGS,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **options,
    )


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        print(f"bucketq {bucketq.__version__}")
        raise typer.Exit


app = _group(
    "A distributed job queue whose whole state is one JSON object on object storage.",
    epilog=_EPILOG,
)


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A distributed job queue whose whole state is one JSON object on object storage."""
    del version

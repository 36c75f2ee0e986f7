"""``bucketq`` and its commands, each of which is imported when it is used."""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

import bucketq
from bucketq.cli.command import QueueCommand, as_command, help_of, usage_errors_as_json
from bucketq.cli.commands import DEFAULTS, GROUPS, SUBCOMMANDS, module_of
from bucketq.cli.option_values import without_pydantic
from bucketq.cli.parameters import option
from bucketq.cli.terminal import exit_codes

_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
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
  BUCKETQ_METRICS_TOKEN  the token that clients of --metrics must show

\b
Exit codes:
""" + "\n".join(f"  {code:>3}  {text}" for code, text in exit_codes.MEANING.items())


class CommandGroup(TyperGroup):
    """``bucketq`` itself, or a command with commands of its own."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._sections = {"commands": SUBCOMMANDS[self.name]} if self.name else GROUPS
        # Only the names are used: to list the commands, and to suggest one after a typo.
        names = itertools.chain.from_iterable(self._sections.values())
        self.commands = dict.fromkeys(names)  # type: ignore[assignment]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return without_pydantic(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the command of this name, and build it."""
        del ctx
        if cmd_name not in self.commands:
            return None
        return _load(self.name, cmd_name) if self.name else _load(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the summaries of the commands, group by group."""
        del ctx
        width = max(map(len, self.commands))
        for title, commands in self._sections.items():
            with formatter.section(title.capitalize()):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in commands.items()])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the name of a command."""
        default = DEFAULTS.get(self.name or "")
        known = {*self.commands, *_SETTINGS["help_option_names"]}
        if default is not None and args and args[0] not in known:
            args = [default, *args]
        with usage_errors_as_json(args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the named command."""
        with usage_errors_as_json(args):
            return super().resolve_command(ctx, args)


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
    "A distributed job queue on object storage: one JSON object, and immutable files beside it.",
    epilog=_EPILOG,
)


@app.callback()
def root(
    *,
    version: Annotated[
        bool, option("--version", "Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Handle the options before a command."""
    del version

"""How a function becomes a command: the options that all commands share, and the address.

A command is a function whose first parameter is an ``Output``; the others are its arguments and
options. It returns an exit code, or None for success.

This module is imported before the command is known. It leaves out what only a running command
needs (asyncio, msgspec), so that ``bucketq --help`` is quick.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bucketq.cli.option_values import without_pydantic
from bucketq.cli.parameters import option
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.argument_help import with_plain_arguments

ADDRESS_VARIABLE = "BUCKETQ_URL"
# Longer than a failover, so that a command survives one; short enough for a person to wait.
DEFAULT_TIMEOUT_S = 60.0

# `file:/path` is an address too, and `serve` takes NAME=URL.
_ADDRESS = re.compile(r"([a-z0-9][a-z0-9._-]*=)?([A-Za-z][A-Za-z0-9+.-]*://|file:/)")
_NEGATIVE = re.compile(r"-[0-9]+")
_NO_ADDRESS = (
    "the address of the queue is missing: pass it first, like file:///srv/jobs/queue.json or "
    f"s3://bucket/queue.json, or set {ADDRESS_VARIABLE}; the address of a file is file:// and its "
    "absolute path"
)
_OTHER_ADDRESS = (["source"], ["target"])
# The base class of all usage errors, which typer does not export.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_COMMON = {
    "as_json": (Annotated[bool, option("--json", "Print JSON, for scripts.")], False),
    "quiet": (Annotated[bool, option("--quiet -q", "Print results and errors only.")], False),
    "debug": (Annotated[bool, option("--debug", "Show tracebacks.")], False),
    "log_format": (
        Annotated[
            str,
            option("--log-format text|json", "Format of what goes to stderr; json with --json."),
        ],
        "",
    ),
    "timeout": (
        Annotated[
            str,
            option(
                "--timeout DURATION", "How long to retry before reporting the outcome as unknown."
            ),
        ],
        f"{DEFAULT_TIMEOUT_S:g}s",
    ),
}


class QueueCommand(TyperCommand):
    """A command whose first argument is the address of a queue, or comes from BUCKETQ_URL."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return with_plain_arguments(without_pydantic(super().get_params(ctx)))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the address from the environment if the command line has none."""
        address = os.environ.get(ADDRESS_VARIABLE)
        names = [param.name for param in self.params if param.param_type_name == "argument"]
        if names[:1] != ["url"]:
            return self._parse(ctx, args)
        if names[-1] == "priority":
            args = _with_negative_last(args, self._options_with_value())
        places = _positionals(args, self._options_with_value())
        given = [args[place] for place in places]
        if not address:
            return self._parse(ctx, args, None if _has_address(given) else given[:1])
        if _lacks_address(given, names):
            place = places[0] if places else len(args)
            args = [*args[:place], address, *args[place:]]
        return self._parse(ctx, args)

    def _parse(self, ctx: Any, args: list[str], no_address: list[str] | None = None) -> list[str]:
        """Parse, and report a missing address as such, not as an error about another argument.

        The check comes after parsing, so that --help works and a wrong option is named.
        ``no_address`` is the word in the position of the address, if there is one.
        """
        with usage_errors_as_json(args):
            try:
                rest = super().parse_args(ctx, args)
            except _UsageError as error:
                kind = getattr(getattr(error, "param", None), "param_type_name", "")
                if no_address is not None and kind == "argument":
                    raise _UsageError(_NO_ADDRESS, ctx) from None
                raise
            # The error of the store explains how to write a path as an address.
            is_left_to_store = ctx.resilient_parsing or any(map(_is_path, no_address or ()))
            if no_address is not None and not is_left_to_store:
                raise _UsageError(_NO_ADDRESS, ctx)
        return rest

    def _options_with_value(self) -> set[str]:
        return {
            name
            for param in self.params
            if param.param_type_name == "option" and not getattr(param, "is_flag", False)
            for name in param.opts
        }


@contextlib.contextmanager
def usage_errors_as_json(args: list[str]) -> Iterator[None]:
    """Report a usage error as JSON if the command line contains --json."""
    words = list(args)  # Parsing consumes the list.
    try:
        yield
    except _UsageError as error:
        if "--json" not in itertools.takewhile(lambda word: word != "--", words):
            raise
        from bucketq.cli.terminal.output import Output

        text = error.format_message()  # type: ignore[attr-defined]  # see _UsageError
        out = Output(json=True, quiet=False, debug=False, timeout_s=0)
        out.error(text, kind="UsageError", exit_code=exit_codes.USAGE)
        raise typer.Exit(exit_codes.USAGE) from None


def _has_address(given: list[str]) -> bool:
    return bool(given) and _ADDRESS.match(given[0]) is not None


def _lacks_address(given: list[str], names: list[str]) -> bool:
    """Whether the positional arguments do not include the address of the queue."""
    if not _has_address(given):
        return True
    # If the other argument may be an address as well, a single address is that argument.
    return len(given) == 1 and names[1:] in _OTHER_ADDRESS


def _with_negative_last(args: list[str], with_value: set[str]) -> list[str]:
    """Let a negative number be the last argument, although it looks like an option."""
    for place, word in enumerate(args):
        if _NEGATIVE.fullmatch(word) and args[place - 1] not in with_value and "--" not in args:
            return [*args[:place], *args[place + 1 :], "--", word]
    return args


def _is_path(word: str) -> bool:
    return word.startswith(("/", "./", "../")) or ".json" in word


def _positionals(args: list[str], with_value: set[str]) -> list[int]:
    """The indexes of the arguments that are neither options nor their values."""
    places: list[int] = []
    place = 0
    while place < len(args):
        word = args[place]
        if word == "--":
            return [*places, *range(place + 1, len(args))]
        if not word.startswith("-") or word == "-":
            places.append(place)
        place += 2 if word in with_value else 1
    return places


def as_command(function: Callable[..., Any]) -> Callable[..., None]:
    """Add the shared options to a function, and turn its errors into exit codes."""
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in _COMMON.items()
    ]

    @functools.wraps(function)
    def run(**given: Any) -> None:
        from bucketq.cli.command_runner import run_command
        from bucketq.cli.terminal.output import Output

        out = Output(
            json=given.pop("as_json"),
            quiet=given.pop("quiet"),
            debug=given.pop("debug"),
            timeout_s=DEFAULT_TIMEOUT_S,
        )
        if code := run_command(function, out, **given):
            raise typer.Exit(code)

    parameters = [*own, *common]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def help_of(doc: str | None) -> tuple[str, str]:
    """Split a docstring into the description and the examples, which keep their layout."""
    text, _, examples = inspect.cleandoc(doc or "").partition("\nExamples:\n")
    lines = inspect.cleandoc(examples).splitlines()
    return text.strip(), "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])

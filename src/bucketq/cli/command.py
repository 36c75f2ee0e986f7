"""How a function becomes a command: shared options, the address, errors and exit codes.

A command is a function whose first parameter is an ``Output``; the others are its arguments and
options. It returns an exit code, or None for success. What it raises is told in one sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output, flush_each_line
from bucketq.errors import BucketQError, NotDurableError, UnavailableError

ADDRESS_VARIABLE = "BUCKETQ_URL"
DEFAULT_TIMEOUT_S = 60.0

# `file:/path` is one too. `serve` takes NAME=URL.
_ADDRESS = re.compile(r"([a-z0-9][a-z0-9._-]*=)?([A-Za-z][A-Za-z0-9+.-]*://|file:/)")
_NO_ADDRESS = (
    "the address of the queue is missing: write it first, like file:///srv/jobs/queue.json or "
    f"s3://bucket/queue.json, or set {ADDRESS_VARIABLE}; the address of a file is file:// and its "
    "whole path"
)
_OTHER_ADDRESS = (["source"], ["target"])
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What every mistake on a command line is; typer gives it no name of its own."""
_COMMON = {
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")],
        False,
    ),
    "quiet": (
        Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")],
        False,
    ),
    "debug": (Annotated[bool, typer.Option("--debug", help="Show tracebacks.")], False),
    "timeout_s": (
        Annotated[
            float,
            typer.Option(
                "--timeout",
                metavar="SECONDS",
                help="How long to try before the outcome is called unknown.",
            ),
        ],
        DEFAULT_TIMEOUT_S,
    ),
}


class QueueCommand(TyperCommand):
    """A command whose first argument is the address of a queue, which may be in the environment."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the address from the environment in its place where none is given."""
        address = os.environ.get(ADDRESS_VARIABLE)
        names = [param.name for param in self.params if param.param_type_name == "argument"]
        if names[:1] != ["url"]:
            return self._parse(ctx, args)
        places = _positionals(args, self._options_with_value())
        given = [args[place] for place in places]
        if not address:
            return self._parse(ctx, args, None if _has_address(given) else given[:1])
        if _lacks_address(given, names):
            place = places[0] if places else len(args)
            args = [*args[:place], address, *args[place:]]
        return self._parse(ctx, args)

    def _parse(self, ctx: Any, args: list[str], no_address: list[str] | None = None) -> list[str]:
        """Parse, and report a missing address as that, not as what another word fails to be.

        Afterwards, so that --help is answered and a wrong option is named. ``no_address`` has what
        is in the place of the address, if anything is.
        """
        with usage_errors_told(args):
            try:
                rest = super().parse_args(ctx, args)
            except _UsageError as error:
                kind = getattr(getattr(error, "param", None), "param_type_name", "")
                if no_address is not None and kind == "argument":
                    raise _UsageError(_NO_ADDRESS, ctx) from None
                raise
            # The store says best how a path is written as an address.
            is_told_later = ctx.resilient_parsing or any(map(_is_path, no_address or ()))
            if no_address is not None and not is_told_later:
                raise _UsageError(_NO_ADDRESS, ctx)
        return rest

    def _options_with_value(self) -> set[str]:
        return {
            name
            for param in self.params
            if param.param_type_name == "option" and not getattr(param, "is_flag", False)
            for name in param.opts
        }


class ReportingGroup(TyperGroup):
    """Commands under one name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the name of a command."""
        with usage_errors_told(args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is named."""
        with usage_errors_told(args):
            return super().resolve_command(ctx, args)


@contextlib.contextmanager
def usage_errors_told(args: list[str]) -> Iterator[None]:
    """Tell a wrong command line as JSON where the command line asks for JSON."""
    words = list(args)  # Reading them uses them up.
    try:
        yield
    except _UsageError as error:
        if "--json" not in itertools.takewhile(lambda word: word != "--", words):
            raise
        text = error.format_message()  # type: ignore[attr-defined]  # see _UsageError
        out = Output(json=True, quiet=False, debug=False, timeout_s=0)
        out.error(text, kind="UsageError", exit_code=exit_codes.USAGE)
        raise typer.Exit(exit_codes.USAGE) from None


def _has_address(given: list[str]) -> bool:
    return bool(given) and _ADDRESS.match(given[0]) is not None


def _lacks_address(given: list[str], names: list[str]) -> bool:
    """Whether the address of the queue is not among the arguments that are given."""
    if not _has_address(given):
        return True
    # A single address: the other argument, where that may be one as well.
    return len(given) == 1 and names[1:] in _OTHER_ADDRESS


def _is_path(word: str) -> bool:
    return word.startswith(("/", "./", "../")) or ".json" in word


def _positionals(args: list[str], with_value: set[str]) -> list[int]:
    """Where the arguments are that are neither options nor values of one."""
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
    """Give a function the options that all commands share, and let errors end as exit codes."""
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in _COMMON.items()
    ]

    @functools.wraps(function)
    def run(**given: Any) -> None:
        shared = {name: given.pop(name) for name in _COMMON}
        out = Output(
            json=shared["as_json"],
            quiet=shared["quiet"],
            debug=shared["debug"],
            timeout_s=shared["timeout_s"],
        )
        code = _run(function, out, given)
        if code:
            raise typer.Exit(code)

    parameters = [*own, *common]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def help_of(doc: str | None) -> tuple[str, str]:
    """The description of a command, and its examples laid out as they are written."""
    text, _, examples = inspect.cleandoc(doc or "").partition("\nExamples:\n")
    lines = inspect.cleandoc(examples).splitlines()
    return text.strip(), "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _run(function: Callable[..., Any], out: Output, given: dict[str, Any]) -> int:
    flush_each_line()
    try:
        result = function(out, **given)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        sys.stdout.flush()
    except BucketQError as error:
        return _tell(out, error)
    except KeyboardInterrupt:
        out.error(f"stopped; {out.after_interrupt}", exit_code=exit_codes.INTERRUPTED)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        _mute()
        return exit_codes.UNREAD
    except Exception as error:  # noqa: BLE001 - the last place where anything can be told
        if out.debug:
            traceback.print_exc()
        text = f"unexpected {type(error).__name__}: {error}; --debug shows where"
        out.error(text, exit_code=exit_codes.UNEXPECTED)
        return exit_codes.UNEXPECTED
    return int(result or 0)


def _mute() -> None:
    """Whoever read our output has had enough: let what is left of it go nowhere, in silence."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
            continue
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _tell(out: Output, error: BucketQError) -> int:
    if out.debug:
        traceback.print_exc()
    code = exit_codes.code_of(error)
    fields: dict[str, object] = {"kind": type(error).__name__, "exit_code": code}
    request = error.request if isinstance(error, UnavailableError | NotDurableError) else None
    if request:
        fields["request"] = request
    out.error(str(error), **fields)
    if request and not out.json_errors:
        print(
            f"bucketq: to repeat it to the effect of one, add: --request {request}",
            file=sys.stderr,
        )
    return code

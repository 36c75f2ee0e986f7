"""How a function becomes a command: shared options, the address, errors and exit codes.

A command is a function whose first parameter is an ``Output``; the others are its arguments and
options. It returns an exit code, or None for success. What it raises is told in one sentence.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bucketq.cli import exits
from bucketq.cli.output import Output
from bucketq.errors import BucketQError, UnavailableError

ADDRESS_VARIABLE = "BUCKETQ_URL"

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
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
        60.0,
    ),
}


class QueueCommand(TyperCommand):
    """A command whose first argument is the address of a queue, which may be in the environment."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the address from the environment in its place where none is given."""
        address = os.environ.get(ADDRESS_VARIABLE)
        names = [param.name for param in self.params if param.param_type_name == "argument"]
        if address and names[:1] == ["url"]:
            place = _first_positional(args, self._options_with_value())
            if place == len(args) or not _ADDRESS.match(args[place]):
                args = [*args[:place], address, *args[place:]]
        return super().parse_args(ctx, args)

    def _options_with_value(self) -> set[str]:
        return {
            name
            for param in self.params
            if param.param_type_name == "option" and not getattr(param, "is_flag", False)
            for name in param.opts
        }


def _first_positional(args: list[str], with_value: set[str]) -> int:
    """Where the first argument is that is not an option, or the value of one."""
    place = 0
    while place < len(args):
        word = args[place]
        if word == "--":
            return place + 1
        if not word.startswith("-") or word == "-":
            return place
        place += 2 if word in with_value else 1
    return len(args)


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
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def help_of(function: Callable[..., Any]) -> tuple[str, str]:
    """The description of a command, and its examples laid out as they are written."""
    text, _, examples = (inspect.getdoc(function) or "").partition("\nExamples:\n")
    lines = inspect.cleandoc(examples).splitlines()
    return text.strip(), "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _run(function: Callable[..., Any], out: Output, given: dict[str, Any]) -> int:
    try:
        result = function(out, **given)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        sys.stdout.flush()
    except BucketQError as error:
        return _tell(out, error)
    except KeyboardInterrupt:
        out.error(f"stopped; {out.after_interrupt}", exit_code=exits.INTERRUPTED)
        return exits.INTERRUPTED
    except BrokenPipeError:
        raise  # Whoever reads our output has had enough; the caller of this knows that.
    except Exception as error:  # noqa: BLE001 - the last place where anything can be told
        if out.debug:
            traceback.print_exc()
        text = f"unexpected {type(error).__name__}: {error}; --debug shows where"
        out.error(text, exit_code=exits.UNEXPECTED)
        return exits.UNEXPECTED
    return int(result or 0)


def _tell(out: Output, error: BucketQError) -> int:
    if out.debug:
        traceback.print_exc()
    code = exits.code_of(error)
    fields: dict[str, object] = {"kind": type(error).__name__, "exit_code": code}
    request = error.request if isinstance(error, UnavailableError) else None
    if request:
        fields["request"] = request
    out.error(str(error), **fields)
    if request and not out.json:
        print(
            f"bucketq: to repeat it to the effect of one, add: --request {request}",
            file=sys.stderr,
        )
    return code

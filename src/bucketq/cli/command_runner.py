"""Runs a command, and turns its errors into one sentence and an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.log import choose_format
from bucketq.cli.terminal.output import Output, flush_each_line
from bucketq.errors import BucketQError, NotDurableError, UnavailableError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def run_command(
    function: Callable[..., Any], out: Output, *, timeout: str, log_format: str, **given: Any
) -> int:
    """Call the function of a command, and return the exit code."""
    flush_each_line()
    try:
        choose_format(log_format, out)
        out.timeout_s = parse_duration(timeout, "--timeout")
        result = function(out, **given)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        sys.stdout.flush()
    except BucketQError as error:
        return _report(out, error)
    except KeyboardInterrupt:
        out.error(f"stopped; {out.after_interrupt}", exit_code=exit_codes.INTERRUPTED)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        _silence_closed_streams()
        return exit_codes.PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the last place that can report it
        if out.debug:
            traceback.print_exc()
        out.error(_describe(error), exit_code=exit_codes.UNEXPECTED)
        _silence_closed_streams()
        return exit_codes.UNEXPECTED
    return int(result or 0)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in _FULL:
        # Those of the storage are errors of their own.
        name = error.filename or "the output"
        return f"cannot write {name}: {error.strerror}; free some space on its filesystem"
    return f"unexpected {type(error).__name__}: {error}; --debug shows where"


def _silence_closed_streams() -> None:
    """Discard output that cannot be written any more, or Python would report that at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
            continue
        os.dup2(devnull, stream.fileno())
    os.close(devnull)


def _report(out: Output, error: BucketQError) -> int:
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
            f"bucketq: to retry safely (applied at most once), add: --request {request}",
            file=sys.stderr,
        )
    return code

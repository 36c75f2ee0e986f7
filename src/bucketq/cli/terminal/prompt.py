"""Asks for confirmation before something is deleted."""

from __future__ import annotations

import sys

from bucketq.cli.terminal.interrupt import at_once
from bucketq.cli.terminal.output import Output, printable
from bucketq.errors import InvalidRequestError


def confirmed(out: Output, what: str) -> bool:
    """Ask for confirmation; if stdin is not a terminal, raise an error that names --yes."""
    if not sys.stdin.isatty():
        message = f"this would {what}; add --yes to confirm"
        raise InvalidRequestError(message)
    print(printable(f"{what}? [y/N] "), end="", file=sys.stderr, flush=True)
    try:
        with at_once():
            answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        out.after_interrupt = "nothing was done"
        raise
    if answer.strip().lower() in {"y", "yes"}:
        return True
    out.note("nothing was done")
    return False

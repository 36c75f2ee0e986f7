"""Asking before something is lost."""

from __future__ import annotations

import sys

from bucketq.cli.output import Output, printable
from bucketq.errors import InvalidRequestError


def confirmed(out: Output, what: str) -> bool:
    """Ask whether to go on; where nobody can answer, say how to do it without asking."""
    if not sys.stdin.isatty():
        message = f"this would {what}; say --yes to do it without being asked"
        raise InvalidRequestError(message)
    print(printable(f"{what}? [y/N] "), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    out.note("nothing was done")
    return False

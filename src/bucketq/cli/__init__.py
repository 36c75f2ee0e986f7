"""``bucketq``: the command line.

It needs the extra ``cli``. Everything heavier than the standard library is imported when it is
used, so that ``bucketq --help`` is quick and a missing extra is reported in one sentence.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130
_NEW_OBJECTS = 100_000
"""More than a short command makes: modules are most of it, and none of them is garbage."""


def main() -> None:
    """Run the command that the arguments name."""
    try:
        from bucketq.process_memory import collect_rarely, skip_last_collection

        collect_rarely(_NEW_OBJECTS)
        try:
            _run()
        finally:
            skip_last_collection()
    except KeyboardInterrupt:
        # No command has begun, so there is nothing to report.
        sys.exit(_INTERRUPTED)


def _run() -> None:
    try:
        from bucketq.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        print('the command line is not installed: pip install "bucketq[cli]"', file=sys.stderr)
        sys.exit(1)
    app(prog_name="bucketq")

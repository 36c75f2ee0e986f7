"""``bucketq edit``: edit the object of a queue."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, option
from bucketq.cli.terminal.output import Output, counted, plain
from bucketq.codec.layout import TABLES
from bucketq.errors import BucketQError, InvalidRequestError


async def run(
    out: Output,
    *,
    url: Url,
    pretty: Annotated[
        bool, option("--pretty", "Indent the JSON instead of writing one job per line.")
    ] = False,
) -> int:
    """Edit the object of a queue in $VISUAL or $EDITOR.

    The text is checked and gets a new checksum; changes to its first line are ignored. Workers may
    continue: your changes are merged into the newest version. If another process changed the same
    rows or fields, nothing is written, and your text is kept in a file that the error names.

    Rows in segments are not in the text, and stay as they are: use `show`, `cancel`, `redrive` and
    `purge` for them. The table of segments cannot be edited.

    Examples:
        EDITOR=nano bucketq edit file:///srv/jobs/queue.json
        bucketq edit s3://bucket/jobs/queue.json --pretty
    """
    async with open_object(url, out.timeout_s) as target:
        draft = await admin.begin_edit(target, pretty=pretty)
        if draft.segments:
            out.note(
                f"{counted(draft.not_shown, 'job')} in {counted(draft.segments, 'segment')} "
                "are not in the text, and stay as they are"
            )
        path = _write_draft(target.key, draft.text)
        out.after_interrupt = f"nothing was written; your text is in {path}"
        keep = True
        try:
            _run_editor(path)
            text = path.read_bytes()
            if text == draft.text:
                keep = False
                out.done("nothing was changed", {"changed": 0})
                return 0
            out.after_interrupt = (
                "whether your changes were written is unknown: check with `bucketq edit`; "
                f"your text is in {path}"
            )
            edited = await admin.finish_edit(target, draft, text)
            keep = False
        except (BucketQError, OSError) as error:
            message = f"{error}; your text is kept in {path}"
            if isinstance(error, BucketQError):
                error.args = (message,)
                raise
            raise InvalidRequestError(message) from error
        finally:
            if not keep:
                path.unlink(missing_ok=True)
    what = ", ".join(_describe(name, count) for name, count in edited.changes.items())
    out.done(
        f"written as version {edited.summary.version:,}: {what or 'nothing'} changed", plain(edited)
    )
    for field in edited.unknown:
        out.note(f"kept, but bucketq does not know this field: {field}")
    return 0


def _describe(name: str, count: int) -> str:
    """Describe a change: how many rows of a table, or which field of the head."""
    return counted(count, name.removesuffix("s")) if name in TABLES else name


def _write_draft(key: str, text: bytes) -> Path:
    name = Path(key).name.removesuffix(".json")
    handle, path = tempfile.mkstemp(prefix=f"bucketq-edit-{name}-", suffix=".json")
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    return Path(path)


def _run_editor(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        words = [*shlex.split(editor), str(path)]
        ended = subprocess.run(words, check=False)  # noqa: S603 - the user's own editor
    except (OSError, ValueError) as error:
        message = f"cannot run the editor {editor!r}: {error}; set EDITOR"
        raise InvalidRequestError(message) from None
    if ended.returncode:
        message = f"the editor {editor!r} exited with code {ended.returncode}; nothing was written"
        raise InvalidRequestError(message)

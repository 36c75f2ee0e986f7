"""Write the golden objects of the formats that this code writes, and golden segments.

    python -m tests.compat.regenerate            only those that are missing
    python -m tests.compat.regenerate --replace  all of them

A golden object that exists is what a queue in use looks like. Replacing one is right only
before the format is released; afterwards a change needs a new format, beside the old files.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bucketq.codec.document import Document
from tests.compat.adopted_rows import adopted_segment
from tests.compat.expiring_rows import expiring_segment
from tests.compat.large_rows import large_archive, large_parts, large_segment
from tests.compat.limit_rows import limited_segment
from tests.compat.states import FILES, pushed_segments, segments, vectors
from tests.compat.unique_rows import unique_segment

FOLDER = Path(__file__).parent


def encode(name: str) -> bytes:
    """The object as the code writes it now."""
    golden = FILES[name]
    return Document(golden.build()).prepare(golden.commit).body


def path_of(name: str) -> Path:
    return FOLDER / f"format-{FILES[name].format}" / f"{name}.json"


def segment_path(segment: str, queue: str = "deep") -> Path:
    """The place of a segment or vector beside a queue, as in a store."""
    folder = path_of(queue).with_suffix("") / "segments" / FILES[queue].build().incarnation
    return folder / (segment if segment.endswith(".gone") else f"{segment}.jsonl")


def part_path(name: str) -> Path:
    """The place of a part of a side object beside its queue."""
    return path_of("large").with_suffix("") / "payloads" / name


def files() -> dict[Path, bytes]:
    """All golden files as the code writes them now."""
    found = {path_of(name): encode(name) for name in FILES}
    found |= {segment_path(record.id): body for record, body in segments().values()}
    pushed = pushed_segments().values()
    found |= {segment_path(record.id, "pushed"): body for record, body in pushed}
    record, body = unique_segment()
    found[segment_path(record.id, "unique")] = body
    record, body = expiring_segment()
    found[segment_path(record.id, "expiring")] = body
    record, body = adopted_segment()
    found[segment_path(record.id, "adopted")] = body
    record, body = limited_segment()
    found[segment_path(record.id, "limited")] = body
    record, body = large_segment()
    found[segment_path(record.id, "large")] = body
    key, body = large_archive()
    found[path_of("large").with_suffix("") / "archive" / key] = body
    found |= {part_path(name): body for name, body in large_parts().items()}
    return found | {segment_path(name): body for name, body in vectors().items()}


def regenerate(*, replace: bool) -> list[str]:
    """Write the files; return what was done to each."""
    report = []
    for path, body in files().items():
        if not path.exists():
            path.parent.mkdir(exist_ok=True, parents=True)
            done = "written"
        elif path.read_bytes() == body:
            report.append(f"{path.name}: unchanged")
            continue
        elif not replace:
            report.append(f"{path.name}: differs, and is left as it is; see --replace")
            continue
        else:
            done = "replaced"
        path.write_bytes(body)
        report.append(f"{path.name}: {done}")
    return report


if __name__ == "__main__":
    sys.stdout.write("\n".join(regenerate(replace="--replace" in sys.argv[1:])) + "\n")

"""Parts of an index, as Parquet files: made from segments, merged, and read by word.

A part has two kinds of files. ``postings`` has a row for each word of each document, with its
frequency and the length of the document, sorted by word; ``texts`` has the documents, sorted by
place, for titles and snippets. Both are cut into files of limited size, and the manifest has the
first and last word of each, so that a search fetches only files that may have its words, and
decodes only row groups that do.

Every file has a name that was never used before. So a process that makes a part
twice, or loses a race, disturbs no other.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bucketq.clock import SystemClock, new_id
from examples.indexing.location import Location
from examples.indexing.manifest import File, Part, numbers, ranges
from examples.indexing.ranking import Posting, count_words
from examples.indexing.wal import Document, Place, Segment

_POSTINGS = pa.schema(
    [
        ("term", pa.string()),
        ("segment", pa.int32()),
        ("line", pa.int32()),
        ("frequency", pa.int32()),
        ("length", pa.int32()),
    ]
)
_TEXTS = pa.schema(
    [
        ("segment", pa.int32()),
        ("line", pa.int32()),
        ("id", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("length", pa.int32()),
    ]
)
_POSTINGS_A_FILE = 16_384
_TEXTS_A_FILE = 256
_GROUP_ROWS = 2_048


async def build(location: Location, namespace: str, segment: Segment) -> Part:
    """Make a part of a segment, and store its files."""
    postings: list[tuple[str, int, int, int, int]] = []
    texts = []
    for line, document in enumerate(segment.documents):
        counts = count_words(document)
        length = counts.total()
        place = Place(segment.number, line)
        postings += [(term, *place, frequency, length) for term, frequency in counts.items()]
        texts.append((*place, document.id, document.title, document.text, length))
    postings.sort()
    return await _store(
        location,
        namespace,
        [(segment.number, segment.number)],
        _table(postings, _POSTINGS),
        _table(texts, _TEXTS),
    )


async def merge(location: Location, namespace: str, parts: Sequence[Part]) -> Part:
    """Make one part of several, and store its files."""
    postings, texts = await asyncio.gather(
        read_all(location, [file for part in parts for file in part.postings]),
        read_all(location, [file for part in parts for file in part.texts]),
    )
    by_place = [("segment", "ascending"), ("line", "ascending")]
    return await _store(
        location,
        namespace,
        ranges(number for part in parts for number in numbers(part.segments)),
        postings.sort_by([("term", "ascending"), *by_place]),
        texts.sort_by(by_place),
    )


async def read_all(location: Location, files: Iterable[File]) -> pa.Table:
    """Read all rows of some files."""
    bodies = await _fetch(location, files)
    return pa.concat_tables(pq.read_table(io.BytesIO(body)) for body in bodies)


async def find_postings(
    location: Location, files: Iterable[File], terms: Sequence[str]
) -> list[tuple[str, Place, Posting]]:
    """Read the rows of some words, from files that may have them."""
    found = []
    for body in await _fetch(location, files):
        table = pq.read_table(io.BytesIO(body), filters=[("term", "in", terms)])
        for row in table.to_pylist():
            posting = Posting(row["frequency"], row["length"])
            found.append((row["term"], Place(row["segment"], row["line"]), posting))
    return found


async def find_texts(
    location: Location, files: Iterable[File], places: Sequence[Place]
) -> dict[Place, Document]:
    """Read the documents at some places, from files that may have them."""
    found = {}
    numbers_wanted = sorted({place.segment for place in places})
    for body in await _fetch(location, files):
        table = pq.read_table(io.BytesIO(body), filters=[("segment", "in", numbers_wanted)])
        for row in table.to_pylist():
            document = Document(row["id"], row["title"], row["text"])
            found[Place(row["segment"], row["line"])] = document
    return {place: found[place] for place in places if place in found}


def spell(place: Place) -> str:
    """Return a place as a word that sorts as places do."""
    return f"{place.segment:012d}-{place.line:06d}"


async def _fetch(location: Location, files: Iterable[File]) -> list[bytes]:
    stored = await asyncio.gather(*(location.store.get(file.key) for file in files))
    return [each.body for each in stored]


async def _store(
    location: Location,
    namespace: str,
    segments: list[tuple[int, int]],
    postings: pa.Table,
    texts: pa.Table,
) -> Part:
    """Cut sorted rows into files, and store them."""
    label = f"{segments[0][0]}-{segments[-1][1]}-{new_id(SystemClock())}"
    prefix = f"{location.index(namespace)}parts/{label}"
    bodies: dict[str, bytes] = {}

    def cut(table: pa.Table, kind: str, limit: int) -> list[File]:
        files = []
        for place, offset in enumerate(range(0, table.num_rows, limit)):
            rows = table.slice(offset, limit)
            key = f"{prefix}.{kind}-{place}.parquet"
            bodies[key] = body = _encode(rows)
            first, last = _edge(rows, 0), _edge(rows, rows.num_rows - 1)
            files.append(File(key, first, last, rows.num_rows, len(body)))
        return files

    part = Part(
        segments=segments,
        documents=texts.num_rows,
        words=pa.compute.sum(texts["length"]).as_py(),
        postings=cut(postings, "postings", _POSTINGS_A_FILE),
        texts=cut(texts, "texts", _TEXTS_A_FILE),
    )
    await asyncio.gather(*(location.store.put(key, body) for key, body in bodies.items()))
    return part


def _edge(rows: pa.Table, number: int) -> str:
    """Return what a row is sorted by."""
    row: dict[str, Any] = rows.slice(number, 1).to_pylist()[0]
    return row["term"] if "term" in row else spell(Place(row["segment"], row["line"]))


def _encode(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=_GROUP_ROWS, compression="zstd")
    return sink.getvalue()


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )

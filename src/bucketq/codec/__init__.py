"""The format of ``queue.json``: the only place that knows it, and that upgrades it.

The object is JSON that a person can read with ``cat``, ``jq`` and ``grep``::

    {"format":1,"checksum":"crc32:5f1c0b3a","bytes":1534,
    "version":42,"commit":"9be1…","incarnation":"…",…,
    "sessions":[
    {"id":"…",…}
    ],"keys":[
    ],"jobs":[
    {"id":"01J…","kind":"index","status":"queued",…},
    {"id":"01J…","kind":"index","status":"running",…}
    ]}

The first line says what the format is, and the CRC-32 and the length of everything after that
line. ``docs/reference/protocol.md`` is the specification.
"""

from bucketq.codec.decode import decode
from bucketq.codec.document import Document, Prepared
from bucketq.codec.heading import Heading, read_heading
from bucketq.codec.inline_copy import InlineCopy, RowSpool
from bucketq.codec.layout import FORMAT, TABLES
from bucketq.codec.lines import JobLines, read_job_lines
from bucketq.codec.tombstone import Tombstone, is_tombstone, read_tombstone

__all__ = [
    "FORMAT",
    "TABLES",
    "Document",
    "Heading",
    "InlineCopy",
    "JobLines",
    "Prepared",
    "RowSpool",
    "Tombstone",
    "decode",
    "is_tombstone",
    "read_heading",
    "read_job_lines",
    "read_tombstone",
]

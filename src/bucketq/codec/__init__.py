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

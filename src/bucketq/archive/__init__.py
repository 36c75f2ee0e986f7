"""Where finished jobs go: segments of JSON lines, in a path bucketed by UTC hour.

A job leaves the queue through an outbox. Marked done in the object it is acknowledged; then it is
written to a segment; then a later commit lets it go. A kill at any point loses nothing: it can
leave a job in two segments, or in a segment and in the queue, and readers drop the repetition.

Old segments can be compacted into a table of Parquet files; readers see both as one.
"""

from bucketq.archive.layout import Layout
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.upkeep import collect, prune, sweep
from bucketq.archive.writer import SegmentWriter

__all__ = ["ArchiveReader", "Layout", "SegmentWriter", "collect", "prune", "sweep"]

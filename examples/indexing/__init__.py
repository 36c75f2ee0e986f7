"""A small search engine on object storage, whose index is built by jobs on Spark.

    python -m examples.indexing                     # see all of it, in the folder build/demo
    python -m examples.indexing write               # write documents, push a job for each segment
    python -m examples.indexing index               # run the jobs on Spark
    python -m examples.indexing search python "read a json file"

Documents are appended to a write-ahead log (``wal``), in numbered objects. Each write pushes a job,
and Spark's executors take the jobs (``tasks``) and build an inverted index as Parquet (``parts``),
which one small object names (``manifest``). A search (``search``) reads the index, and from the log
what the index does not have yet, so a document is found as soon as it was written, and ranks the
same before and after it was indexed. All of it is stored beside the queue, on any store that can
hold a queue. ``docs/guides/indexing.md`` explains why no crash loses or duplicates anything.

The documents (``corpus``) are text that is on every machine: the guides of bucketq, its docstrings,
and those of Python's standard library.
"""

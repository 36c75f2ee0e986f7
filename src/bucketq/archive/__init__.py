"""The archive of finished jobs: files of JSON lines, in one folder per UTC hour.

A job leaves the queue through an outbox. It is acknowledged once it is marked done in the object;
then it is written to an archive file; then a later commit removes it from the queue. A kill at any
point loses nothing: it can leave a job in two archive files, or in an archive file and in the
queue, and readers skip the copy.

Old archive files can be compacted into a table of Parquet files; readers read both.
"""

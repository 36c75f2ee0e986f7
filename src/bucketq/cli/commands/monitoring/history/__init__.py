"""Show what changed a queue, or delete old parts of its history.

Without one of the commands below, `bucketq history URL` is `bucketq history ls URL`. A queue has a
history once its setting history_retention_s is not 0.

Examples:
    bucketq config file:///srv/jobs/queue.json history_retention_s=604800
    bucketq history file:///srv/jobs/queue.json --since 2h
    bucketq history purge file:///srv/jobs/queue.json --before 30d
"""

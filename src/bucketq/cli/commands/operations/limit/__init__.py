"""Limit how many jobs of a kind or group run, or start in a period.

The limits are part of the queue and apply to all processes that use it.

Examples:
    bucketq limit s3://bucket/jobs/queue.json kind=email running=5 rate=100/1m
    bucketq limit s3://bucket/jobs/queue.json 'group=*' running=2
    bucketq limit ls s3://bucket/jobs/queue.json
    bucketq limit rm s3://bucket/jobs/queue.json kind=email
"""

"""Manage schedules, by which a queue pushes jobs by itself.

Brokers, embedded queues and workers fire them. This command never does.

Examples:
    bucketq schedule add s3://bucket/jobs/queue.json nightly report '{}' --cron "0 3 * * *"
    bucketq schedule add s3://bucket/jobs/queue.json tick ping --every 5m
    bucketq schedule ls s3://bucket/jobs/queue.json
    bucketq schedule pause s3://bucket/jobs/queue.json nightly
"""

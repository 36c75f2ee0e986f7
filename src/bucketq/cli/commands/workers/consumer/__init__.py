"""Manage consumers, which claim numbered batches of jobs.

A Spark stream is a consumer.

Examples:
    bucketq consumer list s3://bucket/jobs/queue.json
    bucketq consumer remove s3://bucket/jobs/queue.json spark-orders
"""

"""Engines that claim numbered batches of jobs.

Examples:
    bucketq consumer list s3://bucket/jobs/queue.json
    bucketq consumer remove s3://bucket/jobs/queue.json spark-orders
"""

"""Manage access tokens.

A token lets its holder talk to the brokers of one queue, with certain rights.

Examples:
    bucketq token create s3://bucket/jobs/queue.json --name ci --rights push --ttl 90d
    bucketq token list s3://bucket/jobs/queue.json
    bucketq token revoke s3://bucket/jobs/queue.json 4f1e09ab
"""

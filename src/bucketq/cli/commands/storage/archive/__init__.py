"""Read and maintain the archive of finished jobs.

Examples:
    bucketq archive ls s3://bucket/jobs/queue.json --since 2h
    bucketq archive cat s3://bucket/jobs/queue.json --since 7d --kind email > email.jsonl
    bucketq archive compact s3://bucket/jobs/queue.json
    bucketq archive report s3://bucket/jobs/queue.json --from 7d --html report.html
    bucketq archive replay s3://bucket/jobs/queue.json --where "kind = 'index'"
"""

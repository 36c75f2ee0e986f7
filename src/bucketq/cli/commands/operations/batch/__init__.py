"""Manage batches, which push a job when all their jobs have ended.

Producers open and close them by themselves. A batch whose producer died stays open until it is
closed or cancelled here.

Examples:
    bucketq batch ls s3://bucket/jobs/queue.json
    bucketq batch show s3://bucket/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
    bucketq batch close s3://bucket/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
"""

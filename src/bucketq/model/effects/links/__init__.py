"""What links jobs to others: batches, and jobs that wait for jobs."""

"""Object stores: the one seam between bucketq and durable bytes."""

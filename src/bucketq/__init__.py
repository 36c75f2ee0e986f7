"""A distributed job queue whose whole state is one JSON object on object storage."""

"""Start a Spark session: find Java, the master, and the Python of the workers."""

"""Job handlers that run on Spark executors."""

"""Commands that push jobs."""

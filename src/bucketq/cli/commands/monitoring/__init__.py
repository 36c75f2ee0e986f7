"""Commands that show what is in a queue."""

"""Commands that show a queue as it changes: events, counts, and a table with keys."""

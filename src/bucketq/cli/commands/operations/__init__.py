"""Commands that change what a queue does."""

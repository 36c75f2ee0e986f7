"""Commands of programs that work on jobs."""

"""Commands that run brokers and let clients in."""

"""The objects of a queue in the store: how they are read, written and deleted."""

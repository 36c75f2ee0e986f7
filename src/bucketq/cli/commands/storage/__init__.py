"""Commands that work on the storage itself: the object of a queue, and its archive."""

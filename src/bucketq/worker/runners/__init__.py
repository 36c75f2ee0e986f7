"""How handlers are run: on the event loop of the caller, in threads, or in processes."""

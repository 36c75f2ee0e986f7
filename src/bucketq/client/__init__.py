"""How a program reaches a queue: ``connect`` and its blocking face."""

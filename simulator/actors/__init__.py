"""Programs that use a simulated queue: producers, workers, operators."""

"""Large payloads and results: side objects beside the queue, written and read for its verbs."""

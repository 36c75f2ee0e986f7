"""Which requests have taken effect, so that a retry does nothing twice."""

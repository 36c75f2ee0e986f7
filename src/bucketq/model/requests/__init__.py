"""What requests carry, and which have taken effect, so that a retry does nothing twice."""

"""What a simulated queue promised, checked against what happened."""

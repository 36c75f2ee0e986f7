"""What operators see of a queue: its workers, and what other operators did."""

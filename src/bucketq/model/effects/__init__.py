"""What each operation does to a state. Only ``transitions`` applies operations."""

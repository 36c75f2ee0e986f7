"""What a command shows on a terminal, and what it reads from one."""

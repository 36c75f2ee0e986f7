"""What a state is indexed by: lanes, ages, leases, and the rows that are in segments."""

"""The queue as pure data: jobs, the state that holds them, and the one function that changes it.

Nothing in here reads a clock, draws a random number, touches the network or awaits.
"""

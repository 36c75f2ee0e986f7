"""Groups and limits: whose turn it is, what may start, and how limits are changed."""

"""The public ``Queue``: every verb, written once, over any committer."""

"""A worker for commands to find."""

import bucketq

worker = bucketq.Worker()


@worker.handler("email")
def send(payload: object) -> None:
    """Do nothing."""

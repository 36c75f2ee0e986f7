"""Who writes an object from this process, for its history and its audit table."""

from __future__ import annotations

import getpass
import socket


def writer_name() -> str:
    """Return the user and the host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # The user of a container may have no name.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"

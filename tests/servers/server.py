"""What the tests need to know of a running server."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from tests.servers.process import Child

BUCKET = "bucketq-tests"

# Credentials of the servers below, which live for the time of the tests and on the loopback
# interface only. They go through the environment, as a user's do.
S3_ACCESS, S3_SECRET = "bucketq", "only-for-tests"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
ENVIRON = {
    "AWS_ACCESS_KEY_ID": S3_ACCESS,
    "AWS_SECRET_ACCESS_KEY": S3_SECRET,
    "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
    "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
}

_numbers = itertools.count()


@dataclass(frozen=True)
class Server:
    """A server and how to reach it; ``endpoint`` may be that of a proxy before it."""

    scheme: str
    endpoint: str
    options: dict[str, str] = field(default_factory=dict)
    child: Child | None = None

    def url(self, name: str = "queue.json", **options: object) -> str:
        """The address of an object in a folder that no other test uses."""
        words = {"endpoint": self.endpoint, **self.options}
        words |= {name: str(value) for name, value in options.items()}
        # Two runs may happen to share a server: one that was started on the ports of another ends,
        # and the other one answers.
        folder = f"{os.getpid()}-{next(_numbers)}"
        return f"{self.scheme}://{BUCKET}/{folder}/{name}?{urlencode(words)}"

    @property
    def port(self) -> int:
        """Where it listens."""
        port = urlsplit(self.endpoint).port
        assert port is not None
        return port

    def stop(self) -> None:
        """End it."""
        if self.child is not None:
            self.child.stop()

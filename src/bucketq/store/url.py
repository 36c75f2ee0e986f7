"""From the address of a queue to its store and the key in it.

Guarantees: an invalid address is refused with an example of a valid one; what may be a
secret (``user:password@``) is refused and never repeated, neither in a message nor in
``Location.url``. Opening an address does no I/O, so that a wrong path shows at first use.

Reads only the environment, and that only for a cloud address.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.errors import InvalidRequestError
from bucketq.model.partitions import Partition, check_count
from bucketq.store.base import ObjectStore
from bucketq.store.memory import MemoryStore, shared_memory_store
from bucketq.store.queue_folder import partition_key

_MOST_DIGITS = 9
_EXAMPLE = "write it like file:///srv/jobs/queue.json"
_MEMORY_KEY = "queue.json"
_MEMORY_NAME = r"[A-Za-z0-9._-]*"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_STRAY = re.compile(r"[\x00-\x1f\x7f]|\s\Z|%(?![0-9A-Fa-f]{2})")
_STRAY_KEY = re.compile(r"[\x00-\x1f\x7f]|^/|/$")
_CLOUD_SCHEMES = frozenset({"s3", "gs", "az"})


class Location(Struct, frozen=True):
    """Where a queue is: a store, the key of the queue's object, and the address of both.

    ``url`` is the address in its canonical spelling, without secrets. ``is_lent`` means that the
    store belongs to the caller, which also closes it. ``scope`` says which processes can see the
    store: this one, those of this host, or others too. ``clock`` is the clock of its queues, if
    that is not the system's. ``partition`` says which one it is, of a queue that has partitions.
    """

    store: ObjectStore
    key: str
    url: str
    is_lent: bool = False
    scope: Literal["process", "host", "shared"] = "shared"
    clock: Clock | None = None
    partition: Partition | None = None
    queue_url: str = ""
    """The address of the queue, if this is one of its partitions."""

    def at_partition(self, index: int, count: int, queue: str) -> Location:
        """Return where a partition of this queue is."""
        return replace(
            self,
            key=partition_key(self.store.url, self.key, index),
            url=f"{self.url} (partition {index})" if index else self.url,
            partition=Partition(index, count, queue),
            queue_url=self.url,
        )

    @property
    def is_of_this_host(self) -> bool:
        """Whether no other host sees it."""
        return self.scope != "shared"


CredentialProvider = Callable[[], Any]
"""Returns credentials, or a coroutine of them, whenever the client needs new ones.

obstore documents the credentials of each provider: ``S3CredentialProvider``,
``GCSCredentialProvider`` and ``AzureCredentialProvider``. Its module ``obstore.auth`` has some
that are ready for use, of boto3 and of the SDKs of Google and Azure.
"""


def open_store(
    url: str,
    *,
    store: ObjectStore | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Location:
    """Open the store that an address names.

    ``file:///path/queue.json`` is a file of this machine. ``memory://NAME`` is shared within
    this process, and ``memory://`` is a new store each time, for the caller alone.
    ``s3://bucket/key``, ``gs://bucket/key`` and ``az://container/key`` are objects in a cloud;
    ``cloud_options`` documents their options.

    With ``store``, that one is used, and ``url`` is the key of the queue's object in it.

    An option ``partitions=8`` in any of them says that the queue has so many.
    """
    plain, count = split_partitions(url)
    location = _open(plain, store, credential_provider)
    return location if count is None else replace(location, partition=Partition(0, count))


def split_partitions(url: str) -> tuple[str, int | None]:
    """Take the option ``partitions`` out of an address; None: it has none."""
    plain, count = _split_number(url, "partitions")
    if count is not None:
        check_count(count, plain)
    return plain, count


def split_partition(url: str) -> tuple[str, int | None]:
    """Take the option ``partition`` out of an address; None: it has none."""
    return _split_number(url, "partition")


def _split_number(url: str, name: str) -> tuple[str, int | None]:
    address, mark, options = url.partition("?") if isinstance(url, str) else (url, "", "")
    found = [each for each in options.split("&") if each.partition("=")[0] == name]
    if not found:
        return url, None
    text = found[0].partition("=")[2]
    if len(found) > 1 or not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InvalidRequestError(
            f"the option `{name}` of an address is a number, as in "
            f"file:///srv/jobs/queue.json?{name}=8"
        )
    rest = "&".join(each for each in options.split("&") if each not in found)
    return address + (mark + rest if rest else ""), int(text)


def _open(
    url: str, store: ObjectStore | None, credential_provider: CredentialProvider | None
) -> Location:
    if store is not None:
        return _lent(store, url, credential_provider)
    parts = _split(url)
    if "@" in parts.netloc:
        raise InvalidRequestError(
            "the address of the queue holds a user name or password; take out what is before "
            "the '@' and give credentials through the environment"
        )
    if parts.scheme in _CLOUD_SCHEMES:
        return _open_cloud(parts, credential_provider)
    if parts.scheme in {"bucketq", "bucketqs"}:
        raise InvalidRequestError(
            "a bucketq:// address leads to a broker, and this needs the queue's object itself: "
            "use its own address, like s3://bucket/queue.json"
        )
    if parts.scheme not in {"file", "memory"}:
        # Not repeated: in user:password@host the user looks like the scheme.
        raise InvalidRequestError(
            "the scheme of the queue's address is not known; use s3://, gs://, az://, file:// "
            "or memory://"
        )
    if credential_provider is not None:
        raise InvalidRequestError(
            f"a {parts.scheme}:// address needs no credentials; leave out `credential_provider`"
        )
    if "?" in url or "#" in url:
        raise InvalidRequestError(
            f"a {parts.scheme}:// address takes no options but `partitions`, and this one has "
            "a '?' or '#' in it; in a file name they are written %3F and %23"
        )
    return _open_file(parts) if parts.scheme == "file" else _open_memory(parts)


def _lent(
    store: ObjectStore, key: object, credential_provider: CredentialProvider | None
) -> Location:
    """Use a store that the caller passed."""
    if credential_provider is not None:
        raise InvalidRequestError(
            "a store of your own has its credentials; leave out `credential_provider`"
        )
    if not callable(getattr(store, "get_if_changed", None)):
        raise InvalidRequestError(
            f"`store` is an object with the methods of bucketq's ObjectStore, and "
            f"{type(store).__name__} has others; for a client of a cloud, use its address"
        )
    if not callable(getattr(store, "get_range", None)):
        raise InvalidRequestError(
            f"`store` is an object with the methods of bucketq's ObjectStore, and "
            f"{type(store).__name__} lacks `get_range`; add it"
        )
    if not isinstance(key, str) or not key or "://" in key or _STRAY_KEY.search(key):
        raise InvalidRequestError(
            'with `store`, the first argument is the key of the queue in it, like "queue.json"'
        )
    return Location(store, key, f"{store.url.rstrip('/')}/{key}", is_lent=True)


def _split(url: object) -> SplitResult:
    """Split an address into its parts. Raises ``InvalidRequestError`` if it is not a URL."""
    if not isinstance(url, str):
        raise InvalidRequestError(
            f"the address of a queue is a string, not {type(url).__name__}; {_EXAMPLE}"
        )
    if not _SCHEME.match(url):
        is_whole_path = url.startswith("/") and "@" not in url
        suggestion = f"write it as {Path(url).as_uri()}" if is_whole_path else _EXAMPLE
        raise InvalidRequestError(
            "the address of the queue has no scheme; the address of a file is file:// and its "
            f"whole path: {suggestion}"
        )
    if _STRAY.search(url):
        raise InvalidRequestError(
            "the address of the queue has a control character, a blank at its end or a lone '%' "
            "in it; in a file name '%' is written %25"
        )
    try:
        return urlsplit(url)
    except ValueError:
        # Its message may repeat a password.
        raise InvalidRequestError(f"the address of the queue is not a URL; {_EXAMPLE}") from None


def _open_cloud(parts: SplitResult, credential_provider: CredentialProvider | None) -> Location:
    """Open an object in a cloud."""
    # Not at the top: its client is an extra, starts threads, and does not survive a fork.
    try:
        from bucketq.store.cloud import open_cloud  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise InvalidRequestError(
            f'{parts.scheme}:// addresses need one more package: pip install "bucketq[cloud]"'
        ) from error
    return Location(*open_cloud(parts, credential_provider))


def _open_file(parts: SplitResult) -> Location:
    """Open ``file:///path/name``: the directory is the store, the name is the key."""
    # Not at the top: this import fails if the system is not POSIX, and memory:// must not.
    from bucketq.store.local import LocalStore, check_key  # noqa: PLC0415 - POSIX only

    if parts.netloc.lower() not in {"", "localhost"}:
        raise InvalidRequestError(
            f"file://{parts.netloc}/ names another machine; a path has three slashes before "
            f"it: {_EXAMPLE}"
        )
    try:
        path = unquote(parts.path, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"the path {parts.path} is not UTF-8 once its %-escapes are read; {_EXAMPLE}"
        ) from error
    if not path.startswith("/") or "\0" in path:
        raise InvalidRequestError(f"{path!r} is not a whole path; {_EXAMPLE}")
    folder, _, name = path.rpartition("/")
    if name in {"", ".", ".."}:
        raise InvalidRequestError(
            f"{path} is a directory; name a file in it, like file://{quote(folder)}/queue.json"
        )
    check_key(name)
    root = Path("/", folder.lstrip("/"))
    return Location(
        LocalStore(root, like=name), name, PurePosixPath(root, name).as_uri(), scope="host"
    )


def _open_memory(parts: SplitResult) -> Location:
    """Open ``memory://`` or ``memory://NAME``."""
    if parts.path or not re.fullmatch(_MEMORY_NAME, parts.netloc):
        raise InvalidRequestError(
            "a name in memory:// has only letters, digits and '.', '_', '-'; write it like "
            "memory://jobs, or memory:// for a store of your own"
        )
    store = shared_memory_store(parts.netloc) if parts.netloc else MemoryStore()
    return Location(store, _MEMORY_KEY, store.url, scope="process", clock=store.clock)

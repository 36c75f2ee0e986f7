"""The names of queues on a command line: NAME=URL, or a name that follows from the address."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from bucketq.errors import InvalidRequestError

_NAMED = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})=(.+)")
_UNFIT = re.compile(r"[^a-z0-9._-]+")


def name_and_url(text: str) -> tuple[str, str]:
    """Parse NAME=URL, or derive the name from a URL."""
    found = _NAMED.fullmatch(text)
    if found is not None:
        return found[1], found[2]
    path = PurePosixPath("/" + urlsplit(text).path.strip("/"))
    stem = path.stem if path.stem != "queue" else path.parent.name or "queue"
    return as_name(stem), text


def as_name(text: str) -> str:
    """Return a name of a queue that resembles a text."""
    return _UNFIT.sub("-", text.lower()).strip("-._")[:64] or "queue"


async def find_queues(urls: list[str]) -> dict[str, str]:
    """Return the addresses of queues by their names; of a folder, all that are under it now."""
    from bucketq.client.connect_arguments import BROKERS
    from bucketq.store.queue_search import QueueFolder, is_folder
    from bucketq.store.url import open_store

    found = [name_and_url(each) for each in urls if not is_folder(each)]
    for _, address in found:
        if not address.startswith(BROKERS):
            await open_store(address).store.close()  # It raises if this is no address of a queue.
    for each in filter(is_folder, urls):
        folder = QueueFolder(each)
        try:
            found += [(as_name(queue.name), queue.url) for queue in await folder.find()]
        finally:
            await folder.close()
    queues = dict[str, str]()
    for name, address in found:
        if queues.setdefault(name, address) != address:
            message = f"two queues are called {name}: name one of them, as NAME={address}"
            raise InvalidRequestError(message)
    if not queues:
        raise InvalidRequestError(f"there are no queues under {', '.join(urls)}")
    return queues

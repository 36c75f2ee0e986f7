"""The options of streams, checked: a wrong one is named before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.spark.format_options import STREAM_ONLY, Access, access, count, kinds, named, seconds

_STREAM = ("path", "token", "timeoutSeconds", "kind", *STREAM_ONLY)

_MOST_JOBS = 100_000
_MOST_PARTITIONS = 10_000
_JOBS = 10_000
_LEASE_S = 300.0
"""Long enough for a driver to be started again, so that it finds its batch as it was."""
_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True)
class StreamOptions:
    """What a stream takes, and how."""

    access: Access
    consumer: str
    kinds: tuple[str, ...]
    max_jobs: int
    """How many jobs a batch has at most."""
    partitions: int
    """How many parts a batch has at least, where it has as many jobs."""
    lease_s: float
    """How long nobody else gets the jobs of a batch after its driver was last heard of."""
    fail_on_lost: bool
    """Whether a batch that is done again without some of its jobs is an error."""


def is_for_stream(given: Mapping[str, str]) -> bool:
    """Whether there is an option that only streams have."""
    own = {name.lower() for name in STREAM_ONLY}
    return any(name.lower() in own for name in given)


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Check the options of a stream. Raises ``InvalidRequestError`` that names the wrong one."""
    found = named(given, _STREAM, "streams")
    consumer = found.get("consumer", "").strip()
    if not consumer:
        message = (
            "the option consumer is missing: a name of this stream's own, under which the queue "
            'keeps what it has taken, as in option("consumer", "indexer")'
        )
        raise InvalidRequestError(message)
    check.name(consumer, "consumer")
    return StreamOptions(
        access=access(found),
        consumer=consumer,
        kinds=kinds(found),
        max_jobs=count(found, "maxJobsPerTrigger", _MOST_JOBS) or _JOBS,
        partitions=count(found, "minPartitions", _MOST_PARTITIONS) or 1,
        lease_s=seconds(found, "leaseSeconds", _LEASE_S),
        fail_on_lost=_switch(found, "failOnLostClaim", otherwise=True),
    )


def _switch(found: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    text = found.get(name)
    if text is None:
        return otherwise
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        message = f"option {name}: {text!r} is neither true nor false"
        raise InvalidRequestError(message)
    return value

"""Ids of jobs, and how those that are pushed without one are derived from their request.

A retry of the request makes the same ids, and no other request makes them. They begin with the time
at which the request was made, as ULIDs do; then come 80 bits: a hash of the request's id, and from
there on numbers in a row.

A push looks for its ids among the jobs of the queue, to recognise a repetition. Ids that follow
from the request itself need no such look in segments: ``is_made_by`` tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from bucketq.base32 import PAIRS, number_of

TIME_LENGTH = 10
ID_LENGTH = 26
_HASH_BYTES = 10
_HASHES = 2**80
_OF_ANY_PARTITION = 2**70
"""How many numbers all letters but those of the partition, the first two, write."""
_HALF = 2**40
"""How many numbers half of the letters write."""
_FOUR = 2**20
"""How many numbers four letters write; the ids of one push mostly differ in the last four alone."""
_PAIR_BYTES = tuple(pair.encode() for pair in PAIRS)


class JobId(str):
    """The id of a job, as ``push`` returns it: a string that knows whether the job was new.

    ``duplicate`` is True if the job was there already, so that nothing was added.
    """

    __slots__ = ()

    duplicate = False
    """Whether the job was there already, so that nothing was added."""


class KnownJobId(JobId):
    """The id of a job that was there already."""

    __slots__ = ()

    duplicate = True


def job_id(time: str, session: str, number: int, index: int) -> str:
    """Return the id of a job that a request pushes; ``time`` are its first letters."""
    found, pairs = _first(session, number, index), PAIRS
    # Spelled out: every push of one job calls this, and small numbers are faster to divide.
    upper, lower = found >> 40, found % _HALF
    return (
        f"{time}{pairs[upper >> 30]}{pairs[upper >> 20 & 1023]}"
        f"{pairs[upper >> 10 & 1023]}{pairs[upper & 1023]}{pairs[lower >> 30]}"
        f"{pairs[lower >> 20 & 1023]}{pairs[lower >> 10 & 1023]}{pairs[lower & 1023]}"
    )


def job_ids(time: str, session: str, number: int) -> Iterator[str]:
    """Yield the ids of all jobs that a request pushes, in order."""
    return _numbered(time, _first(session, number))


def ids_after(first: str, start: int) -> Iterator[str]:
    """Yield the ids that a request makes after ``first``, from the one at this distance on."""
    number = number_of(first[TIME_LENGTH:])
    if number is None:
        message = f"{first} is no id that a request makes"
        raise ValueError(message)
    return _numbered(first[:TIME_LENGTH], (number + start) % _HASHES)


def joined_ids(time: str, session: str, number: int, start: int, count: int) -> bytes:
    """Return some of the ids that ``job_ids`` yields, joined; ``start`` is the index of the first.

    That is ten times as fast, because Python makes no object for each.
    """
    found, parts = _first(session, number, start), list[bytes]()
    while count:
        opening = (time + _upper(found) + PAIRS[found % _FOUR >> 10]).encode()
        pairs = _PAIR_BYTES[found & 1023 :][:count]
        parts += [opening, opening.join(pairs)]
        count -= len(pairs)
        found = _after_pairs(found)
    return b"".join(parts)


def made_by(session: str, number: int) -> frozenset[str]:
    """Return what the ids of a request's jobs have between the partition and the last four letters.

    There are two, because the numbers of a large push may pass the end of the last four letters.
    """
    found = _first(session, number)
    return frozenset((_upper(found)[2:], _upper((found + _FOUR) % _HASHES)[2:]))


def is_made_by(made: frozenset[str], job: str) -> bool:
    """Whether an id follows from the request that ``made`` stands for, in whichever partition."""
    return job[TIME_LENGTH + 2 : -4] in made


def is_first_of(session: str, number: int, job: str) -> bool:
    """Whether an id is that of the first job of a request, in whichever partition."""
    if len(job) != ID_LENGTH:
        return False
    return number_of(job[TIME_LENGTH + 2 :]) == _first(session, number) % _OF_ANY_PARTITION


def distance(first: str, job: str) -> int | None:
    """Return how many ids a request makes after ``first`` until it makes ``job``; None: never."""
    if job[:TIME_LENGTH] != first[:TIME_LENGTH] or len(job) != ID_LENGTH:
        return None
    number, start = number_of(job[TIME_LENGTH:]), number_of(first[TIME_LENGTH:])
    return None if number is None or start is None else (number - start) % _HASHES


def made_at(job: str) -> int | None:
    """Return when the request of a job was made, in milliseconds; None: its id is a user's own."""
    if len(job) != ID_LENGTH or number_of(job) is None:
        return None
    return number_of(job[:TIME_LENGTH])


def _first(session: str, number: int, index: int = 0) -> int:
    made = _hash_of(session).copy()
    made.update(b"%d" % number)
    return (int.from_bytes(made.digest()) + index) % _HASHES


@lru_cache(maxsize=256)
def _hash_of(session: str) -> blake2b:
    """Begin the hash of a request's id; kept, because a session makes many requests."""
    return blake2b(f"{session}/".encode(), digest_size=_HASH_BYTES)


def _numbered(time: str, number: int) -> Iterator[str]:
    while True:
        # Many at once, because a push may have millions.
        start = time + _upper(number) + PAIRS[number % _FOUR >> 10]
        yield from map(start.__add__, PAIRS[number & 1023 :])
        number = _after_pairs(number)


def _after_pairs(number: int) -> int:
    """Return the next number whose last two letters are the first of all pairs."""
    return (number // 1024 + 1) * 1024 % _HASHES


def _upper(number: int) -> str:
    """All of an id but the time and the last four letters."""
    return _four(number >> 60) + _four((number >> 40) % _FOUR) + _four((number >> 20) % _FOUR)


def _four(number: int) -> str:
    return PAIRS[number >> 10] + PAIRS[number & 1023]

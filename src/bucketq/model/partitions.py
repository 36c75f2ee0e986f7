"""Partitions: a queue that is spread over several objects, and where in it a job belongs.

Each partition is an object with a leader of its own. Partition 0 is the object at the address of
the queue; how many there are is fixed when that is created, and every partition has it written in
its head. A client sends each request to the partition that it belongs to, so nothing is atomic or
in order across partitions (``docs/adr/0048``).

A job belongs to the partition of its group; without one, of its key; or of its unique name, of its
batch, of the first job that it waits for, or of its id. An id that bucketq makes begins with the
time; the next two letters, as a number modulo the count, are its partition. In a queue without
partitions they are a part of the hash of the request, and mean nothing. Anything else is hashed.

A lease that such a queue hands out ends in a dot and the partition of its job.
"""

from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from bucketq.base32 import crockford, number_of
from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.job_ids import ID_LENGTH, TIME_LENGTH, made_at

FEATURE = "partitions"
"""What the object of a partition requires of its readers: others would see a part of the queue."""
MAX_PARTITIONS = 64
"""Each is an object that is polled, and a broker in every process that serves the queue."""
_LETTERS = slice(TIME_LENGTH, TIME_LENGTH + 2)
_HASH_BYTES = 8


class Partition(Struct, frozen=True, forbid_unknown_fields=True):
    """Which partition of a queue an object is."""

    index: int
    count: int
    queue: str = ""
    """The incarnation in which partition 0 was created; all partitions of a queue have the same.
    Empty: it is not known yet."""


class OtherPartitionsError(InvalidRequestError):
    """The object is another partition than expected, or one of another number of partitions."""

    def __init__(self, message: str, count: int = 0) -> None:
        """Keep how many partitions the queue has, if this is the object at its address."""
        super().__init__(message)
        self.count = count


def check_count(count: int, where: str) -> None:
    """Refuse a number of partitions that is not possible."""
    if not 1 <= count <= MAX_PARTITIONS:
        message = f"{where}: a queue has 1 to {MAX_PARTITIONS} partitions, not {count}"
        raise InvalidRequestError(message)


def compare(found: Partition | None, wanted: Partition | None, where: str) -> Partition | None:
    """Return which partition was found. Raises ``OtherPartitionsError`` if another was wanted."""
    if found is None and wanted is None:
        return None
    if found is None:
        message = (
            f"{where} has no partitions, and the address asks for {wanted.count if wanted else 0}: "
            "how many a queue has is fixed when it is created; leave out `partitions`"
        )
        raise OtherPartitionsError(message)
    if wanted is None:
        message = f"{where} is partition {found.index} of a queue with {found.count} partitions"
        message += (
            "; use the address of the queue itself"
            if found.index
            else ", and this works on a queue without partitions only"
        )
        raise OtherPartitionsError(message, 0 if found.index else found.count)
    if found.count != wanted.count:
        message = (
            f"{where} has {found.count} partitions, and the address asks for {wanted.count}: how "
            "many a queue has is fixed when it is created"
        )
        raise OtherPartitionsError(message)
    if found.index != wanted.index or (wanted.queue and found.queue != wanted.queue):
        message = (
            f"{where} is partition {found.index} of the queue {found.queue}, and not partition "
            f"{wanted.index} of {wanted.queue}: it is left over from a queue that was at this "
            "address before, or was copied here; delete it, or restore the right one"
        )
        raise OtherPartitionsError(message)
    return found


def new_partition(
    wanted: Partition | None, incarnation: str, requires: dict[str, None]
) -> Partition | None:
    """Return which partition a queue that is created will be; it ``requires`` readers to know."""
    if wanted is None:
        return None
    requires[FEATURE] = None
    return replace(wanted, queue=wanted.queue or incarnation)


def partition_of(name: str, count: int) -> int:
    """Return the partition of the job or batch with an id, unless something else decides."""
    if len(name) == ID_LENGTH and number_of(name) is not None:
        return (number_of(name[_LETTERS]) or 0) % count
    return _hashed(f"id={name}", count)


def id_in_partition(job_id: str, index: int) -> str:
    """Return a made id, changed to one of a partition."""
    return job_id[:TIME_LENGTH] + crockford(index, 2) + job_id[TIME_LENGTH + 2 :]


def id_made_in(job_id: str, partition: Partition | None) -> str:
    """Return the id that a partition makes of a made one, so that the job is found by it."""
    if partition is None or made_at(job_id) is None:
        return job_id
    return id_in_partition(job_id, partition.index)


def place_of(job: NewJob) -> str:
    """Return what decides in which partition a job is: the name of something and an equals sign."""
    if job.group:
        return f"group={job.group}"
    if job.key is not None:
        return f"key={job.key}"
    if job.unique is not None:
        return f"unique={job.kind}/{job.unique}"
    if job.batch_id is not None:
        return f"id={job.batch_id}"
    return f"id={job.after[0]}" if job.after else f"id={job.id}"


def partition_at(place: str, count: int) -> int:
    """Return the partition of what ``place_of`` returns, or of ``lease=`` and a lease."""
    what, _, name = place.partition("=")
    if what == "lease":
        return split_lease(name)[1] or 0
    return partition_of(name, count) if what == "id" else _hashed(place, count)


def with_partition(lease: str, index: int) -> str:
    """Return a lease as it is handed out."""
    return f"{lease}.{index}"


def split_lease(lease: str) -> tuple[str, int | None]:
    """Return a lease as its partition knows it, and the partition; None: it does not say."""
    plain, dot, index = lease.rpartition(".")
    if not dot or not index.isdecimal() or len(index) > len(str(MAX_PARTITIONS)):
        return lease, None
    return plain, int(index)


def _hashed(place: str, count: int) -> int:
    digest = blake2b(place.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest) % count

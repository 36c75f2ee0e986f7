"""Large payloads and results: what stands for them in a job, and the operations that move them.

A payload or result above ``inline_bytes`` is not in its job. It is a *side object* in the queue's
folder, and the job holds a reference: its name, its length and its digest. The name begins with the
last version of the queue that may introduce it, as that of a segment does, so that what a crash has
left behind can be told from what is about to be named. It ends with random digits, so no two
jobs ever name the same one.

It is staged (which makes its name), written part by part, and named by the commit that
pushes or completes its job. It is deleted with the job's line in the archive.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from bucketq.errors import PayloadError
from bucketq.model.base import NewJob, Operation
from bucketq.model.records import NOTHING, Encoding, JobRecord

FEATURE = "payloads"
"""What an object with side objects requires of its readers: others would hand out the reference
instead of the payload, and would delete what they do not know."""
PART_BYTES = 1024 * 1024
"""How many bytes a part has, apart from the last. It is as much as a client of a broker sends or
gets at once, so that the broker writes what comes without keeping it."""

Content = Literal["payload", "result"]
"""What a side object is to its job."""
_CONTENTS: dict[Encoding | None, Encoding | None] = {"object": None, "object-bytes": "base64"}
"""How the content of a side object would be encoded if it were in its job."""
_NAME = r"[A-Za-z0-9_-]{1,64}/(\d{20})-[0-9a-f]{32}-[0-9a-f]{16}"
_DIGEST_BYTES = 16


class SideRef(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a job holds instead of a large payload or result."""

    object: str
    """The incarnation that it was written in, a slash, and its name."""
    bytes: int
    digest: str
    """BLAKE2b of its content, 16 bytes as hexadecimal digits."""
    part_bytes: int = PART_BYTES

    @property
    def parts(self) -> int:
        """How many parts it has."""
        return -(-self.bytes // self.part_bytes)

    @property
    def until(self) -> int:
        """The last version of the queue that may introduce it."""
        return until_of(self.object)


class StageObject(Operation, frozen=True):
    """Ask for the name of a side object. Answers a ``Staged``; nothing is written."""

    content: Content
    bytes: int
    digest: str
    nonce: str
    """16 random hexadecimal digits."""
    tries: int = 0
    """How often it was written under another name, which took too long; each try has twice the
    time of the one before."""
    place: str = ""
    """What decides in which partition its job is (``model.partitions``), for the client's own
    committer; it is never sent."""


class Staged(Struct, frozen=True):
    """Where a payload or result goes."""

    object: str
    """The name of the side object; empty: it is small enough for its job."""
    inline_bytes: int
    """How large a payload or result may be that goes in its job."""


class PutPart(Operation, frozen=True):
    """Write a part of a side object. It may be repeated."""

    object: str
    part: int
    data: bytes
    job: str
    """The job that will name it, so that a sweep can see whether it does; empty: it may be any, if
    a push replaces the payload of a job that is there."""
    content: Content


class KeepObject(Operation, frozen=True):
    """Delete the marker of a side object if a job names it, so that no sweep has to look."""

    object: str
    job: str
    content: Content


class ReadPart(Operation, frozen=True):
    """Read a part of a side object. Answers its bytes.

    A worker shows the lease under which it holds the job; any other reader leaves it out.
    """

    object: str
    part: int
    job: str = ""
    lease: str = ""


TRANSFERS = (PutPart, KeepObject, ReadPart)
"""Operations on what is not in the state: committers answer them by themselves."""

AnySideObject = StageObject | PutPart | KeepObject | ReadPart

_encode = msgspec.json.Encoder().encode


def new_digest(data: bytes = b"") -> blake2b:
    """Return the digest of a content, which more can be added to."""
    return blake2b(data, digest_size=_DIGEST_BYTES)


def object_name(incarnation: str, until: int, digest: str, nonce: str) -> str:
    """Return the name of a side object."""
    return f"{incarnation}/{until:020d}-{digest}-{nonce}"


def is_object_name(name: object) -> bool:
    """Whether this is the name of a side object."""
    return isinstance(name, str) and re.fullmatch(_NAME, name) is not None


def until_of(name: str) -> int:
    """Return the last version that may introduce a side object of this name."""
    found = re.fullmatch(_NAME, name)
    return int(found[1]) if found else 0


def is_side(encoding: Encoding | None) -> bool:
    """Whether a payload or result with this encoding is a reference to a side object."""
    return encoding in _CONTENTS


def encoding_inside(encoding: Encoding | None) -> Encoding | None:
    """Return how the content of a side object is encoded: as JSON, or bytes as they are."""
    return _CONTENTS.get(encoding)


def side_encoding(encoding: Encoding | None) -> Encoding:
    """Return the encoding of a reference to a content that has this encoding."""
    return "object" if encoding is None else "object-bytes"


def read_ref(raw: Raw, what: str) -> SideRef:
    """Decode a reference. Raises ``PayloadError``."""
    try:
        ref = msgspec.json.decode(raw, type=SideRef)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PayloadError(f"{what} is not a reference to a side object: {error}") from error
    if not is_object_name(ref.object) or ref.bytes < 1 or ref.part_bytes < 1:
        raise PayloadError(f"{what} is not a reference to a side object")
    return ref


def write_ref(ref: SideRef) -> Raw:
    """Encode a reference."""
    return Raw(_encode(ref))


def content_of(raw: Raw, encoding: Encoding | None) -> Raw:
    """Return what identifies a content: a try that is repeated may have written another object."""
    if not is_side(encoding):
        return raw
    ref = read_ref(raw, "payload")
    return Raw(_encode([ref.digest, ref.bytes]))


def content_in(job: NewJob | JobRecord) -> bytes:
    """Return what identifies the payload of a job."""
    return bytes(content_of(job.payload, job.payload_encoding))


def payload_size(job: JobRecord) -> int:
    """Return how many bytes the payload of a job has, in the job or beside the queue."""
    raw = job.payload
    if job.payload_encoding is None:
        return len(raw)
    if job.payload_encoding == "base64":  # Quotes, and three bytes in four characters.
        return (len(raw) - 2) // 4 * 3 - bytes(memoryview(raw)[-3:-1]).count(b"=")
    try:
        return read_ref(job.payload, "payload").bytes
    except PayloadError:  # The worker that gets it reports that.
        return len(raw)


def refs_of(job: JobRecord) -> list[SideRef]:
    """Return the side objects that a job names; what cannot be read names none."""
    if not is_side(job.payload_encoding) and not is_side(job.result_encoding):
        return []
    bodies = ((job.payload, job.payload_encoding), (job.result, job.result_encoding))
    refs = []
    for raw, encoding in bodies:
        if is_side(encoding) and raw is not NOTHING:
            try:
                refs.append(read_ref(raw, "a body"))
            except PayloadError:
                continue
    return refs

"""What an answer of a cloud store means: the one table between HTTP and bucketq's errors.

Guarantees: after a write, only an answer that proves that nothing was written, and never will
be, is called final. Any other answer that is not a success is *unknown*: a timeout, a broken
connection, an error of the server, and everything that this table does not list. The writer
then reads the object back (``commit/objects/register.py``).

=========================  ================  =================  ===================
answer                     read              create             replace
=========================  ================  =================  ===================
304                        not changed       unknown            unknown
404, bucket is missing     final             final              final
404                        missing           final              missing
409, conflict under way    unknown           unknown            unknown
409                        unknown           exists             unknown
412                        unknown           exists             changed
416                        too short         unknown            unknown
429, or "slow down"        unknown, slower   unknown, slower    unknown, slower
301, 307, 400, 401, 403,   final             final              final
405, 411, 413, 414, 501
a web page, with 403, 405  final             final              final
or 501
a web page, with another   final             unknown            unknown
status not of a store
anything else              unknown           unknown            unknown
=========================  ================  =================  ===================

A read of a range that is answered with anything but that range, or as much of it as the object
has, is final: the answer does not come from a store.

A 409 is not a 412: S3 sends it when two conditional writes meet, and it does not say how either
ended. 400 has a few codes for a broken connection; those are unknown too.

A web page comes from something that is not a store, also with a 404, which then does not mean that
the object is missing. But gateways in front of a store send pages as well, if it is away, slow, or
does not accept an object of that size: 408, 409, 412, 413, 425, 429 and 5xx, except 501, mean what
they mean without a page.

The client's error has a class and, in its text, the status and body of the answer. Only the status,
the provider's error code and the kind of a network error are taken from that text. The rest is
dropped, cause included, because addresses in it can hold signatures and bodies can repeat access
keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bucketq.errors import BucketQError, StoreRefusedError, UnavailableError
from bucketq.store.base import ObjectMissingError, ObjectTooShortError, PreconditionFailedError

_NOT_MODIFIED = 304
_NOT_FOUND = 404
_NO_SUCH_RANGE = 416
_TOO_MANY = 429
_STATUS = re.compile(r"\n\s*inner: Status \{\n\s*status: (\d{3}),")
_WEB_PAGE = re.compile(
    r"""(?xi) \n\s* inner:\ Status\ \{ \n\s* status:\ \d{3}, \n\s* body:\ Some\( \n\s* "
    (?: \s | \\[nrt] | \ufeff | \\u\{feff\} | <\?xml [^>]{0,200} > )* < (?: !doctype | html ) \b"""
)
_STATUS_LINE = re.compile(r"Server returned non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_KIND = re.compile(r"\bkind: ([A-Z][A-Za-z]{1,40})\b")
_URI = re.compile(r"\n\s*uri: Some\(\n\s*(\S+),\n")
_PROVIDER = re.compile(r"External \w+ credential provider")
# The addresses at which machines in a cloud get their credentials.
_CREDENTIALS_URI = re.compile(
    r"/latest/(api/token|meta-data)|/computeMetadata/|/metadata/identity/|oauth2|sts\."
)
_NONSENSE = re.compile(
    r"missing from response|Got invalid|Unable to extract metadata"
    r"|non-partial response|Content-Range header|CONTENT_RANGE header|Requested \d+\.\.\d+, got"
)

# What the client says of an answer without bytes; a store sends 416 instead.
_TOO_SHORT = re.compile(r"Wanted range starting at \d+, but object was only \d+ bytes long")

_NO_BUCKET_CODES = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_UNDER_WAY_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_BROKEN_OFF_CODES = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest", "InternalError"})
_CREDENTIAL_CODES = frozenset(
    {
        "AuthenticationFailed",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_SLOWER_CODES = frozenset({"SlowDown", "SlowDownRead", "SlowDownWrite", "ServerBusy"})

WEB_PAGE = "answers with a web page, not as a store does; check the endpoint"
_NOT_A_STORE = "it answers, but not as such a store does"
_PAGE_IS_FINAL = frozenset({403, 405, 501})
_PAGE_OF_GATEWAY = frozenset({408, 409, 412, 413, 425, 429, *range(500, 600)}) - _PAGE_IS_FINAL
_READS = frozenset({"read", "list"})
_UNREACHED = frozenset({"Connect", "ConnectionRefused"})

_REDIRECT_ADVICE = "it redirects the request; check the region and the endpoint of the bucket"
_CREDENTIAL_ADVICE = (
    "the credentials are missing, wrong or expired; check those in the environment, or pass a "
    "`credential_provider`"
)
_PERMISSION_ADVICE = (
    "these credentials lack a permission; give them reading, writing, deleting and listing of "
    "this bucket (without listing, a missing object reads as forbidden)"
)
# The statuses after which trying again cannot help, and what to do instead.
_ADVICE = {
    301: _REDIRECT_ADVICE,
    307: _REDIRECT_ADVICE,
    308: _REDIRECT_ADVICE,
    400: "it does not understand the request; check that the endpoint is such a store",
    401: _CREDENTIAL_ADVICE,
    403: _PERMISSION_ADVICE,
    405: "it does not allow this; check that the endpoint is such a store",
    411: "it does not understand the request; check that the endpoint is such a store",
    413: "the object is too large for it; archive finished jobs, or use smaller payloads",
    414: "the key is too long for it; use a shorter one",
    501: (
        "it has no conditional writes (If-Match and If-None-Match), without which a queue "
        "would lose jobs; use another store"
    ),
}
_CODE_ADVICE = {
    "RequestTimeTooSkewed": "this machine's clock is wrong; set it",
    "InvalidBucketName": "the name of the bucket is not a valid one; check the address",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of a store; ``verb`` is read, create, replace, put, delete or list."""

    verb: str
    key: str
    where: str
    """The address of the store, without secrets."""
    bucket: str

    @property
    def failure(self) -> str:
        """The start of an error message."""
        return f"cannot {self.verb} {self.key} in {self.where}"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The parts of an answer that messages may include."""

    kind: str
    """The class of the client's error."""
    status: int | None
    code: str
    network: str
    """The kinds of a network error, innermost last."""
    is_nonsense: bool
    is_too_short: bool
    """Whether a range was asked for that begins at or behind the end of the object."""
    lacks_credentials: bool
    is_web_page: bool
    """Whether it came from something that is not a store."""


def read_error(error: BaseException) -> HttpAnswer:
    """Take from an error of the client what is known to hold no secret."""
    text = str(error)
    headline, _, source = text.partition("\n\nDebug source:")
    # Strings in the second part are escaped, so neither a key nor a body can forge this line.
    found = _STATUS.search(source) or (None if source else _STATUS_LINE.search(headline))
    code = _CODE.search(headline)
    uri = _URI.search(source)
    status = int(found[1]) if found else None
    return HttpAnswer(
        kind=type(error).__name__,
        status=status,
        code=code[1] if code else "",
        network=", ".join(dict.fromkeys(_KIND.findall(source))) if found is None else "",
        is_nonsense=found is None and bool(_NONSENSE.search(headline)),
        is_too_short=status == _NO_SUCH_RANGE
        or (found is None and bool(_TOO_SHORT.search(headline))),
        lacks_credentials=bool(
            _PROVIDER.search(headline) or (uri and _CREDENTIALS_URI.search(uri[1]))
        ),
        is_web_page=status not in _PAGE_OF_GATEWAY and bool(_WEB_PAGE.search(source)),
    )


def judge(answer: HttpAnswer, question: Question) -> BucketQError:
    """Return the error that an answer other than a success means."""
    what, described = question.failure, _describe(answer)
    if answer.lacks_credentials:
        return StoreRefusedError(f"{what}: {described}; {_CREDENTIAL_ADVICE}")
    verdict = _judge_endpoint(answer, question) or _judge_condition(answer, question)
    if verdict is not None:
        return verdict
    if question.verb == "read" and answer.is_too_short:
        return ObjectTooShortError(f"{what}: it ends before the range begins")
    if answer.status is None and answer.kind in {"UnauthenticatedError", "PermissionDeniedError"}:
        return StoreRefusedError(f"{what}: {described}; {_CREDENTIAL_ADVICE}")
    if advice := _final_advice(answer):
        return StoreRefusedError(f"{what}: {described}; {advice}")
    outcome = "" if question.verb in _READS else "the outcome is unknown, "
    return UnavailableError(
        f"{what}: {described}; {outcome}try again",
        throttled=answer.status == _TOO_MANY or answer.code in _SLOWER_CODES,
    )


def _judge_endpoint(answer: HttpAnswer, question: Question) -> BucketQError | None:
    """Judge an answer that does not come from a store; return None if it may."""
    what, is_read = question.failure, question.verb in _READS
    if answer.is_web_page:
        page = f"{what}: it {WEB_PAGE} ({_describe(answer)})"
        if is_read or answer.status in _PAGE_IS_FINAL:
            return StoreRefusedError(page)
        return UnavailableError(f"{page}; the outcome is unknown")
    if answer.is_nonsense and is_read:
        return StoreRefusedError(f"{what}: {_NOT_A_STORE}; check the endpoint")
    if is_read and not _UNREACHED.isdisjoint(answer.network.split(", ")):
        return UnavailableError(f"{what}: it cannot be reached ({answer.network}); try again")
    return None


def _judge_condition(answer: HttpAnswer, question: Question) -> BucketQError | None:
    """Judge an answer about the object and its version; return None for others."""
    verb, key, where = question.verb, question.key, question.where
    status = answer.status
    is_missing = status == _NOT_FOUND or (status is None and answer.kind == "FileNotFoundError")
    if is_missing or answer.code in _NO_BUCKET_CODES:
        # An unconditional write or a listing fails like this only if the bucket is missing.
        if verb in {"create", "put", "list"} or answer.code in _NO_BUCKET_CODES:
            return StoreRefusedError(
                f"there is no bucket or container {question.bucket} at {where}; create it, or "
                "check its name and the endpoint"
            )
        return ObjectMissingError(f"there is no object {key} in {where}")
    if answer.code in _UNDER_WAY_CODES:
        return None
    if verb == "create" and answer.kind == "AlreadyExistsError" and status != _NOT_MODIFIED:
        return PreconditionFailedError(f"{key} already exists in {where}")
    if verb == "replace" and answer.kind == "PreconditionError":
        return PreconditionFailedError(f"{key} in {where} has changed")
    return None


def _final_advice(answer: HttpAnswer) -> str | None:
    """Return the advice for an answer that is final; None if it is not."""
    if answer.status is None or answer.code in _BROKEN_OFF_CODES:
        return None
    advice = _ADVICE.get(answer.status)
    if advice is None:
        return None
    if answer.code in _CREDENTIAL_CODES:
        return _CREDENTIAL_ADVICE
    return _CODE_ADVICE.get(answer.code, advice)


def _describe(answer: HttpAnswer) -> str:
    """Describe an answer, without secrets."""
    if answer.status is not None:
        return f"it answered {answer.status}{f' {answer.code}' if answer.code else ''}"
    if answer.is_nonsense:
        return f"{_NOT_A_STORE} (check the endpoint)"
    if answer.kind == "UnauthenticatedError":
        return "the credential provider failed"
    return f"no answer came ({answer.network or answer.kind})"

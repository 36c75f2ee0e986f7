"""What a client sends instead if its broker does not know an operation yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bucketq.commit.request_ids import RequestId, parse_token, token_of
from bucketq.errors import LeaseLostError, NotDurableError, UnavailableError
from bucketq.model.operations import LeaseRef, Release, ReleaseMany

Submit = Callable[[RequestId, Release], Awaitable[None]]


async def release_each(
    submit: Submit, name: RequestId, leases: Sequence[LeaseRef], delay_s: float
) -> list[bool]:
    """Release jobs one by one, for a ``ReleaseMany`` with the id ``name``.

    Brokers commit requests that come together in one write anyway. Each release has an id that is
    derived from ``name``, so that the whole can be retried under ``name``. If the outcome of some
    is unknown, the error carries a token of the ``ReleaseMany``.
    """
    session = name.job_id(0)  # As unique as a session, and the same at every try.

    async def release(number: int, lease: LeaseRef) -> None:
        one = RequestId(session, number, since=name.since, made_ms=name.made_ms)
        await submit(one, Release(job=lease.job, lease=lease.lease, delay_s=delay_s))

    releasing = (release(number, lease) for number, lease in enumerate(leases, start=1))
    ends = await asyncio.gather(*releasing, return_exceptions=True)
    whole = name.request(ReleaseMany(leases=tuple(leases), delay_s=delay_s))
    unknown = [end for end in ends if isinstance(end, UnavailableError | NotDurableError)]
    for error in unknown:
        if error.request is None:
            raise error  # The queue has forgotten too much to judge a retry.
    if unknown:
        since = min(parse_token(error.request, Release).since or 0 for error in unknown)
        raise type(unknown[0])(str(unknown[0]), request=token_of(whole, since)) from unknown[0]
    for end in ends:
        if end is not None and not isinstance(end, LeaseLostError):
            raise end
    return [end is None for end in ends]

"""A client may hang up at any moment: its connection with the broker is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from bucketq.rpc.grpc.admission import Admission
from bucketq.rpc.grpc.grpc_stream import ServerStream
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from tests.unit.rpc.service import FakeConnection, FakeService


class FakeContext:
    """A stream whose client has sent some messages and sends no more."""

    def __init__(self, *requests: pb.SessionRequest) -> None:
        self._requests = list(requests)

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        if not self._requests:
            await asyncio.Event().wait()
        return self._requests.pop(0).SerializeToString()

    async def write(self, _body: bytes) -> None:
        await asyncio.sleep(0)

    def done(self) -> bool:
        return True


async def connections_after(steps: int) -> list[FakeConnection]:
    """Let a client greet and show its token, and hang up after some turns of the loop."""
    service = FakeService()
    service.is_open = False
    requests = (pb.SessionRequest(hello=pb.Hello()), pb.SessionRequest(token="t"))
    admission = Admission()
    session = ServerStream(FakeContext(*requests), admission)
    await admission.enter(session, "ipv4:127.0.0.1:5000", is_known=False)
    running: asyncio.Task[Any] = asyncio.get_running_loop().create_task(session.run(service))
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return service.connections


async def test_a_connection_is_closed_whenever_its_client_hangs_up() -> None:
    found = [await connections_after(steps) for steps in range(20)]
    assert (len(found[0]), len(found[-1])) == (0, 1), "every step was interrupted"
    leaked = [n for n, some in enumerate(found) if not all(one.closed.is_set() for one in some)]
    assert leaked == []

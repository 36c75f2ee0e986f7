"""Names that come from strangers lead nowhere: keys are made of ids, addresses are read whole."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import bucketq
from bucketq import InvalidRequestError
from bucketq.cli.commands.brokers import serve
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from tests.chaos.fleet import BrokerProcess, Fleet
from tests.security.strangers import push_of, unary

HOSTILE = [
    "../../../escape",
    "..%2f..%2fescape",
    "%2e%2e/escape",
    "/etc/escape",
    "a\0b",
    "a\nb",
    "a\r\nSet-Cookie: x",
    "C:\\escape",
    "~/escape",
    "$(touch escape)",
    "`touch escape`; touch escape",
    "<script>alert(1)</script>",
    "\u202egnp.exe",
    "." * 256,
    "e" * 257,
    "",
]

BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)
OURS = r"queue\.json|broker-0\.log|queue/archive/[\w/-]+\.jsonl|(queue/[\w/-]*)?\.[\w.-]+"
"""The object, its archive, the locks of the store, and the log of the broker."""


def files(folder: Path) -> set[str]:
    """Every file that a test has led to, without the broker's log."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def test_a_job_with_a_hostile_id_leads_nowhere(
    folder: Path, url: str, broker: BrokerProcess, channel: Any
) -> None:
    """Its id is kept as text, or refused; no key and no file is called after it."""
    target = pb.Target(queue="jobs")
    said = []
    for name in HOSTILE:
        for push in (push_of(job=name), push_of(job=f"job-of-{name}"), push_of("j", kind=name)):
            try:
                await unary(channel, "Push", pb.PushRequest(target=target, push=push))
                said.append(grpc.StatusCode.OK)
            except grpc.aio.AioRpcError as error:
                said.append(error.code())
    assert set(said) == {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    taken = said.count(grpc.StatusCode.OK)
    async with bucketq.connect(f"bucketq://{broker.address}/jobs") as queue:
        while jobs := await queue.claim(limit=100):
            for job in jobs:
                await queue.complete(job, "done")
        await queue.flush_archive()
    for name in files(folder):
        assert re.fullmatch(OURS, name), name
    assert not list(folder.parent.glob("*escape*"))
    async with bucketq.open_archive(url) as archive:
        assert len([job async for job in archive.jobs(since=BEGINNING)]) == taken


async def test_a_queue_with_a_hostile_name_is_not_there(
    broker: BrokerProcess, channel: Any
) -> None:
    for name in filter(None, HOSTILE):
        request = pb.PushRequest(target=pb.Target(queue=name), push=push_of())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(channel, "Push", request)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND, name
        assert broker.returncode is None, name


@pytest.mark.parametrize("name", ["../x", "X", "a b", "a%2e", ".hidden", "", "a" * 65])
def test_a_queue_is_not_found_under_a_hostile_name(folder: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        serve._locations([f"{name}={(folder / 'q.json').as_uri()}"])
    assert files(folder) == set()


def test_a_queue_is_not_served_under_a_hostile_name(processes: Fleet, folder: Path) -> None:
    before = files(folder)
    ended = processes.command("serve", f"../x={(folder / 'q.json').as_uri()}")
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    assert files(folder) == before


def test_secrets_in_an_address_are_refused_and_not_repeated() -> None:
    for url in (
        "bucketq://me:hunter2@127.0.0.1:7700/jobs",
        "bucketqs://bq_token@127.0.0.1:7700/jobs",
        "bucketqs://127.0.0.1:7700/jobs?token=hunter2",
    ):
        with pytest.raises(InvalidRequestError) as caught:
            bucketq.connect(url)
        assert "hunter2" not in str(caught.value)
        assert "bq_token" not in str(caught.value)

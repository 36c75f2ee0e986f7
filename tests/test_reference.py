"""The reference is true: what its pages list is what the code has, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from hashlib import blake2b
from typing import get_args

import pytest
from msgspec import Raw

from bucketq import Backoff, Settings, errors
from bucketq.broker.leader import SNAPSHOT_BYTES
from bucketq.client.connect_arguments import Launch, Mode
from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.commit.pending_requests import PendingRequest
from bucketq.commit.request_ids import RequestId
from bucketq.model import settings as queue_settings
from bucketq.model.base import NewJob
from bucketq.model.operations import Claim, List, Push, ReadSnapshot, Request
from bucketq.model.requests.request_digest import digest
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.rpc.grpc.grpc_methods import UNARY
from bucketq.rpc.grpc.grpc_stream import (
    MAX_CALLS,
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
)
from bucketq.rpc.messages import Refusal
from bucketq.rpc.protobuf.refusal_status import code_of
from tests.environ import ROOT, child_environ

REFERENCE = ROOT / "docs" / "reference"
SETTINGS = REFERENCE / "settings.md"
ERRORS = REFERENCE / "errors.md"
PROTOCOL = REFERENCE / "protocol.md"
WIRE = REFERENCE / "wire.md"
PROTO = ROOT / "src" / "bucketq" / "rpc" / "protobuf" / "bucketq.proto"
CONNECTING = ROOT / "docs" / "guides" / "connecting.md"
ARCHITECTURE = ROOT / "docs" / "contributing" / "architecture.md"
PACKAGE = ROOT / "src" / "bucketq"
ROOMS = sorted(
    path.parent.name
    for path in PACKAGE.glob("*/__init__.py")
    # Commands have a file each, named like the command; the page on tests describes the last.
    if path.parent.name not in {"cli", "testing"}
)

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LIMIT = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
_CHOICE = re.compile(r'^ *\| `"(\w+)"`', re.MULTILINE)
_STATUS = re.compile(r"^\| `(\w+Error)` \| `([A-Z_]+)` \|", re.MULTILINE)


_ERROR = re.compile(r"^\| `(\w+)` \| `(\w+)` \| ", re.MULTILINE)


def test_the_page_of_the_api_is_what_the_code_says() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from tools.reference import page; print(page(), end='')"],
        cwd=ROOT,
        env=child_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    shown = (REFERENCE / "api.md").read_text("utf-8")
    assert shown == ran.stdout, "the code has changed: run `make reference`"


def test_the_page_of_the_api_describes_every_type_of_bucketq_that_it_names() -> None:
    text = (REFERENCE / "api.md").read_text("utf-8")
    signatures = " ".join(re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    signatures += " ".join(re.findall(r"^ *- `\w+: ([^`]+)`", text, re.MULTILINE))
    named = set(re.findall(r"(?<![\w.'\"])[A-Z]\w+[a-z]\w*", signatures))
    described = set(re.findall(r"^(?:###|-) `(\w+)`", text, re.MULTILINE))
    ours = {
        found[1]
        for path in PACKAGE.rglob("*.py")
        if {"cli", "protobuf"}.isdisjoint(path.parts)
        for found in re.finditer(
            r"^(?:class )?([A-Z]\w+)(?: = |\(|:)", path.read_text(), re.MULTILINE
        )
    }
    assert (named & ours) - described == set()


def test_the_page_of_errors_has_every_error_with_its_base() -> None:
    table = ERRORS.read_text("utf-8").partition("## All errors")[2]
    true = {
        name: kind.__bases__[0].__name__
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.BucketQError)
    }
    assert dict(_ERROR.findall(table)) == true


@pytest.mark.shallow  # The defaults are shown as users have them.
def test_the_page_of_settings_has_every_setting_and_its_default() -> None:
    shown = {name: default.strip() for name, default in _LIMIT.findall(SETTINGS.read_text("utf-8"))}
    new = queue_settings.DEEP
    true = {name: _spelled(name, getattr(new, name)) for name in Settings.__struct_fields__}
    assert shown == true


def test_the_tables_of_modes_and_launches_are_complete() -> None:
    shown = _CHOICE.findall(CONNECTING.read_text("utf-8"))
    assert sorted(shown) == sorted([*get_args(Mode), *get_args(Launch)])


@pytest.mark.parametrize("room", ROOMS)
def test_the_architecture_names_every_module_of_a_room_and_no_other(room: str) -> None:
    text = ARCHITECTURE.read_text("utf-8")
    found = re.search(rf"^### {room}\b.*?(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert found, f"give {room} a section"
    shown = set(re.findall(r"`(\w+\.py)`", found[0]))
    folder = PACKAGE / room
    assert shown == {path.name for path in folder.rglob("*.py") if path.name != "__init__.py"}


def test_the_table_of_errors_on_the_wire_has_every_error_and_its_status() -> None:
    shown = dict(_STATUS.findall(WIRE.read_text("utf-8")))
    true = {
        name: code_of(Refusal(kind=name, message=""))
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.BucketQError)
    }
    assert shown == true


def test_the_calls_and_limits_of_the_wire_are_those_of_the_code() -> None:
    text = WIRE.read_text("utf-8")
    unary = text.partition("**Unary calls**")[2].partition("Each has a `target`")[0]
    assert set(re.findall(r"`(\w+)`", unary)) == set(UNARY)
    assert f"| a message to a broker | {MAX_MESSAGE_BYTES // 1024**2} MiB;" in text
    assert f"{MAX_REQUEST_BYTES // 1024**2} MiB, {MAX_CALLS:,} calls" in text
    assert f"up to {MAX_RESPONSE_BYTES // 1024**3} GiB" in text
    assert f"a queue of up to {SNAPSHOT_BYTES // 1024**2} MiB" in text
    reads = (Request(ReadSnapshot()), Request(List(limit=1)))
    whole, row = (PendingRequest(each, 0, 0.0) for each in reads)
    assert f"whole queues counted as {whole.size_bytes // row.size_bytes:,} each" in text
    proto = PROTO.read_text("utf-8")
    assert f"A message to a broker has at most {MAX_MESSAGE_BYTES // 1024**2} MiB;" in proto


def test_the_specified_object_is_what_the_code_writes() -> None:
    body = specified_object()
    state = decode(body, "docs/reference/protocol.md").state
    state.version -= 1
    commit = state.commits.pop()
    assert Document(state).prepare(commit).body == body


def test_ids_leases_and_digests_are_derived_as_specified() -> None:
    specified = decode(specified_object(), "docs/reference/protocol.md").state
    job = next(iter(specified.jobs))
    found = re.search(r"session `(\w+)`", text := PROTOCOL.read_text("utf-8"))
    secret = re.search(r"secret `(\w+)`", text)
    assert found
    assert secret
    made = re.search(r"time `(\d+)`", text)
    assert made
    assert RequestId(found[1], 1, made_ms=int(made[1])).job_id(0) == job.id
    (session,) = specified.sessions.table
    asked = re.search(r'^  `(\{"kinds".*\})`', text, re.MULTILINE)
    assert asked
    assert session.digests == {3: blake2b(asked[1].encode(), digest_size=4).hexdigest()}
    assert digest(Claim(worker="w", secret="s", kinds=("email",))) == session.digests[3]
    state = State(incarnation="another", created_at=specified.created_at)
    new = NewJob(
        id=job.id, kind=job.kind, payload=Raw(bytes(job.payload)), key=job.key, tags=job.tags
    )
    apply(state, Request(Push(jobs=(new,))), job.pushed_at)
    assert list(state.keys) == list(specified.keys)
    assert job.claimed_at
    assert job.worker
    claim = Claim(worker=job.worker, secret=secret[1])
    assert apply(state, Request(claim), job.claimed_at).answer == (job,)


def specified_object() -> bytes:
    """The worked example of the specification."""
    [example] = [
        block[2] for block in _BLOCK.finditer(PROTOCOL.read_text("utf-8")) if block[1] == "json"
    ]
    return example.encode()


def _spelled(name: str, value: object) -> str:
    """How the table writes a default."""
    if isinstance(value, Backoff):
        assert value.factor == 2
        return f"{value.base_s:g} s, doubled each time, at most {value.max_s:g} s"
    if isinstance(value, bool):
        return str(value).lower()
    assert isinstance(value, int | float)
    if name.endswith("_s"):
        return f"{value:.7g} s"
    if name.endswith("_bytes"):
        kib = int(value) // 1024
        mib = kib // 1024
        return f"{mib // 1024} GiB" if mib >= 1024 else f"{mib} MiB" if mib else f"{kib} KiB"
    return f"{value:,}"


def test_the_permissions_name_every_folder_of_a_queue() -> None:
    sources = [PROTOCOL, *PACKAGE.rglob("*.py")]
    named = {
        name
        for path in sources
        for name in re.findall(r"jobs/queue/([a-z]+)/", path.read_text("utf-8"))
    }
    page = (ROOT / "docs" / "guides" / "operations.md").read_text("utf-8")
    table = re.findall(r"^\| `jobs/queue/([a-z]+)/\*`", page, re.MULTILINE)
    assert sorted(named) == sorted(table)

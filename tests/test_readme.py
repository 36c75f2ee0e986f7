"""What the documents show is true: examples run, and what they list is what the code has."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from msgspec import Raw

from bucketq import Backoff, Settings, errors
from bucketq.client.connect import Launch, Mode
from bucketq.codec import Document, decode
from bucketq.commit.request_ids import RequestId
from bucketq.model.base import NewJob
from bucketq.model.content import digest
from bucketq.model.operations import Claim, Push, Request
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.rpc.grpc_methods import UNARY
from bucketq.rpc.grpc_session import (
    MAX_CALLS,
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
)
from bucketq.rpc.messages import Refusal
from bucketq.rpc.status import code_of
from tests.environ import ROOT, child_environ

README = ROOT / "README.md"
PROTOCOL = ROOT / "docs" / "reference" / "protocol.md"
ARCHITECTURE = ROOT / "docs" / "contributing" / "architecture.md"
WIRE = ROOT / "docs" / "reference" / "wire.md"
ROOMS = (
    "model",
    "codec",
    "store",
    "archive",
    "queue",
    "rpc",
    "broker",
    "client",
    "worker",
    "spark",
)
TIMEOUT_S = 150

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LIMIT = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
_CHOICE = re.compile(r'^ *\| `"(\w+)"`', re.MULTILINE)
_ERROR = re.compile(r"^\| `(\w+Error)` \| `([A-Z_]+)` \|", re.MULTILINE)


class Example(NamedTuple):
    """A program, the line that it begins on, and what it should print where that is shown."""

    line: int
    program: str
    output: str | None


def examples() -> list[Example]:
    """The Python blocks; a text block right behind one is what it prints."""
    text = README.read_text("utf-8")
    blocks = list(_BLOCK.finditer(text))
    found = []
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block[1] != "python":
            continue
        shows = (
            after is not None
            and after[1] == "text"
            and not text[block.end() : after.start()].strip()
        )
        line = text.count("\n", 0, block.start()) + 1
        found.append(Example(line, block[2], after[2] if after and shows else None))
    return found


def test_there_are_examples_with_and_without_asyncio() -> None:
    programs = [example.program for example in examples()]
    assert any("bucketq.connect(" in program for program in programs)
    assert any("bucketq.connect_sync(" in program for program in programs)


@pytest.mark.parametrize("example", examples(), ids=lambda example: f"line-{example.line}")
def test_an_example_runs_and_prints_what_is_shown(example: Example, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.program],
        cwd=tmp_path,
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr
    if example.output is not None:
        assert ran.stdout == example.output


def test_the_path_to_a_running_worker_is_as_shown(tmp_path: Path) -> None:
    section = README.read_text("utf-8").partition("## A worker in five minutes")[2]
    blocks = [block[2] for block in _BLOCK.finditer(section)]
    _install, program, script, log = blocks[:4]
    commands = script.splitlines()
    (tmp_path / "tasks.py").write_text(program, "utf-8")
    shown_url = commands[0].removeprefix("export BUCKETQ_URL=")
    url = (tmp_path / "queue.json").as_uri()
    environ = child_environ(BUCKETQ_URL=url)
    bucketq = [sys.executable, "-m", "bucketq.cli"]
    *pushes, work = [shlex.split(command)[1:] for command in commands[1:]]
    for push in pushes:
        subprocess.run([*bucketq, *push], cwd=tmp_path, env=environ, check=True)
    with subprocess.Popen(
        [*bucketq, *work], cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        try:
            shown = [_plain(line, shown_url) for line in log.splitlines()]
            told = [_plain(process.stderr.readline().rstrip(), url) for _ in shown]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0
    assert sorted(told) == sorted(shown)


def test_the_table_of_limits_tells_every_setting_and_its_default() -> None:
    shown = {name: default.strip() for name, default in _LIMIT.findall(README.read_text("utf-8"))}
    defaults = Settings()
    true = {name: _spelled(name, getattr(defaults, name)) for name in Settings.__struct_fields__}
    wrong = [
        f"`{name}` | {default}" for name, default in true.items() if shown.get(name) != default
    ]
    assert not wrong, f"tell these in the README's table of limits: {wrong}"


def test_the_tables_of_modes_and_launches_tell_every_one() -> None:
    shown = _CHOICE.findall(README.read_text("utf-8"))
    assert sorted(shown) == sorted([*get_args(Mode), *get_args(Launch)])


@pytest.mark.parametrize("room", ROOMS)
def test_the_architecture_names_every_module_of_a_room_and_no_other(room: str) -> None:
    text = ARCHITECTURE.read_text("utf-8")
    found = re.search(rf"^### {room}\b.*?(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert found, f"give {room} a section"
    shown = set(re.findall(r"`(\w+\.py)`", found[0]))
    folder = ROOT / "src" / "bucketq" / room
    assert shown == {path.name for path in folder.rglob("*.py") if path.name != "__init__.py"}


def test_the_table_of_errors_on_the_wire_tells_every_error_and_its_status() -> None:
    shown = dict(_ERROR.findall(WIRE.read_text("utf-8")))
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


def _plain(line: str, url: str) -> str:
    """A line of a log without what differs each time."""
    line = line.replace(url, "URL")
    return re.sub(r"^\S+Z |(?<=job=)\w{26}|(?<=took_s=)[\d.e-]+", "", line)


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
        return f"{kib // 1024} MiB" if kib >= 1024 else f"{kib} KiB"
    return f"{value:,}"

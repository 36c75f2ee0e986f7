"""A queue on each kind of server, from the command line alone."""

from __future__ import annotations

import pytest

from tests.cli.console import Console
from tests.servers.running import SERVERS, running
from tests.servers.server import ENVIRON, Server

pytestmark = pytest.mark.servers


# One of each kind: a second S3 server is one more case.
@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.full if name == "ministack" else [])
        for name in SERVERS
    ]
)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    for variable, value in ENVIRON.items():
        monkeypatch.setenv(variable, value)
    return running(request.param)


def test_every_command_works_on_each_kind_of_server(console: Console, server: Server) -> None:
    console.url = server.url(write_interval_s=0)
    report = console.ok("doctor", "URL", "--json").json
    assert report["fit"], report
    assert {found["name"] for found in report["findings"]} >= {"clock", "latency", "versioning"}
    assert report["expected"]["commits_per_s_direct"] > 0
    console.ok("create", "URL", "lease_s=60")
    console.ok("push", "URL", "mail", stdin=b'{"to": "ada"}')
    lines = b"".join(b'{"n": %d}\n' % number for number in range(100))
    (console.folder / "jobs.jsonl").write_bytes(lines)
    console.ok("push", "URL", "n", "--bulk", "--file", "jobs.jsonl", "--batch", "40")
    job = console.ok("claim", "URL", "--kind", "mail", "--json").json
    console.ok("complete", "URL", job["id"], job["lease"], "--result", "1")
    assert console.ok("archive", "flush", "URL", "--json").json == {"archived": 1}
    assert [line["id"] for line in console.ok("archive", "cat", "URL").lines] == [job["id"]]
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 100
    console.ok("backup", "URL", "copy.json")
    assert console.ok("delete", "URL", "--archive", "--yes", "--json").json["archive_files"] == 1
    assert console.run("stats", "URL").code == 3
    console.ok("restore", "URL", "copy.json")
    assert len(console.ok("ls", "URL", "--all", "--json").lines) == 100


def test_the_console_script_exits_cleanly_on_each_server(console: Console, server: Server) -> None:
    console.url = server.url(write_interval_s=0)
    ran = console.spawn("push", "URL", "mail", "1")
    assert (ran.code, ran.err) == (0, "")
    assert console.spawn("claim", "URL", "--json").json["payload"] == 1


def test_wrong_credentials_and_missing_buckets_are_reported_in_one_sentence(
    console: Console, server: Server
) -> None:
    missing = server.url().replace("bucketq-tests", "no-such-bucket")
    for words in (("push", missing, "mail", "1"), ("doctor", missing, "--quiet")):
        ran = console.run(*words, "--timeout", "5")
        assert ran.code in {1, 4}, ran
        assert "Traceback" not in ran.err
        assert "bucket" in ran.err + ran.out or "container" in ran.err + ran.out

"""Bad input: one clear sentence, the right exit code, and nothing changed."""

from __future__ import annotations

import pytest

from tests.cli.console import COMMANDS, Console

JOB, LEASE = "job", "0" * 32

ON_A_QUEUE = {
    "claim": (),
    "heartbeat": (JOB, LEASE),
    "complete": (JOB, LEASE),
    "fail": (JOB, LEASE),
    "release": (JOB, LEASE),
    "stats": (),
    "tail": (),
    "ls": (),
    "show": (JOB,),
    "cancel": (JOB,),
    "priority": (JOB, "1"),
    "pause": (),
    "resume": (),
    "dead": (),
    "redrive": (),
    "purge": ("--yes",),
    "config": (),
    "delete": ("--yes",),
    "backup": ("copy.json",),
    "edit": (),
    "repair": (),
}


@pytest.mark.parametrize("name", ON_A_QUEUE)
def test_a_missing_queue_is_not_created(console: Console, name: str) -> None:
    ran = console.run(name, "URL", *ON_A_QUEUE[name])
    assert ran.code == 3, ran
    assert len(ran.err.splitlines()) == 1
    assert "no queue at" in ran.err
    assert list(console.folder.iterdir()) == []


ADDRESSES = (
    ("queue.json", "has no scheme"),
    ("ftp://host/queue.json", "scheme"),
    ("file:///srv/jobs/", "is a directory"),
    ("file:///srv/../", "is a directory"),
    ("file:///srv/jobs/..", "is a directory"),
    ("file://host/queue.json", "another machine"),
    ("memory://a/b", "memory://"),
    ("s3://user:secret@bucket/queue.json", "credentials"),
)
OF_FOLDERS = {"dashboard", "serve", "queues", "top"}
"""Commands for which an address may end in a slash."""


@pytest.mark.parametrize(
    ("url", "reason", "name"),
    [
        (url, reason, name)
        for url, reason in ADDRESSES
        for name in COMMANDS
        if not (url.endswith("/") and name in OF_FOLDERS)
    ],
)
def test_a_bad_address_is_rejected_in_one_sentence(
    console: Console, url: str, reason: str, name: str
) -> None:
    extra: tuple[str, ...] = ON_A_QUEUE.get(name, ())
    extra = {
        "push": ("k", "1"),
        "wait": ("job",),
        "import": ("-",),
        "restore": ("-",),
        "archive prune": ("--older-than", "1d", "--yes"),
        "archive replay": ("--where", "true"),
        "token create": ("--name", "ci", "--rights", "push"),
        "token revoke": ("00000000",),
        "consumer remove": ("spark",),
        "schedule add": ("tick", "ping", "--every", "5m"),
        "schedule rm": ("tick",),
        "schedule pause": ("tick",),
        "schedule resume": ("tick",),
        "schedule run": ("tick",),
        "history purge": ("--before", "1d"),
        "diff": ("1", "2"),
        "drain": ("worker",),
        "batch show": ("batch",),
        "batch close": ("batch",),
        "batch cancel": ("batch",),
        "limit set": ("kind=k", "running=1"),
        "limit rm": ("kind=k",),
    }.get(name, extra)
    place = ("tests.cli.idle_worker", "--url", url) if name == "work" else (url,)
    ran = console.run(*name.split(), *place, *extra)
    assert ran.code == 2, ran
    assert reason in ran.err
    assert "secret" not in ran.err.replace("a secret", "")
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("frobnicate",),
        ("stats",),
        ("stats", "URL", "--frobnicate"),
        ("stats", "URL", "more"),
        ("push", "URL"),
        ("push", "URL", "bad kind", "1"),
        ("push", "URL", "k", "{not json}"),
        ("push", "URL", "k", "1e400"),
        ("push", "URL", "k", "7" * 5000),
        ("push", "URL", "k", ""),
        ("push", "URL", "k"),
        ("push", "URL", "k", "1", "--priority", "high"),
        ("push", "URL", "k", "1", "--delay", "soon"),
        ("push", "URL", "k", "1", "--delay", "1h", "--run-at", "2099-01-01"),
        ("push", "URL", "k", "1", "--run-at", "tomorrow"),
        ("push", "URL", "k", "1", "--tag", "novalue"),
        ("push", "URL", "k", "1", "--as", "xml"),
        ("push", "URL", "k", "1", "--file", "x.json"),
        ("push", "URL", "k", "--file", "nowhere.json"),
        ("push", "URL", "k", "--file", "."),
        ("push", "URL", "k", "1", "--request", "nonsense"),
        ("push", "URL", "k", "1", "--max-attempts", "0"),
        ("push", "URL", "k", "1", "--timeout", "0"),
        ("push", "URL", "k", "1", "--timeout", "nan"),
        ("backup", "URL", "copy.json", "--timeout", "-1"),
        ("claim", "URL", "--limit", "0"),
        ("claim", "URL", "--wait", "forever"),
        ("claim", "URL", "--wait", "2h"),
        ("claim", "URL", "--kind", "bad kind"),
        ("complete", "URL", JOB),
        ("complete", "URL", JOB, LEASE, "--result", "{"),
        ("complete", "URL", JOB, LEASE, "--result", "1", "--result-file", "x"),
        ("ls", "URL", "--status", "asleep"),
        ("ls", "URL", "--after", "-1"),
        ("ls", "URL", "--tag", "x"),
        ("redrive", "URL", "--limit", "0"),
        ("purge", "URL", "--older-than", "ages", "--yes"),
        ("archive",),
        ("archive", "frobnicate"),
        ("archive", "prune", "URL"),
        ("archive", "compact", "URL", "--from", "1h", "--to", "2h"),
        ("archive", "compact", "URL", "--settled-after", "soon"),
        ("archive", "report", "URL", "--from", "soon"),
        ("archive", "report", "URL", "--html", "no/such/folder/page.html"),
        ("archive", "replay", "URL"),
        ("archive", "replay", "URL", "--where", "true", "--again", "--name", "x"),
        ("archive", "replay", "memory://jobs", "--where", "true"),
        ("archive", "ls", "URL", "--since", "1h", "--until", "2h"),
        ("consumer",),
        ("consumer", "remove", "URL"),
        ("consumer", "remove", "URL", ""),
        ("schedule",),
        ("schedule", "add", "URL", "tick", "ping"),
        ("schedule", "add", "URL", "tick", "ping", "--every", "0"),
        ("schedule", "add", "URL", "tick", "ping", "--every", "soon"),
        ("schedule", "add", "URL", "tick", "ping", "not json", "--every", "5m"),
        ("schedule", "add", "URL", "tick", "ping", "--every", "5m", "--cron", "* * * * *"),
        ("schedule", "add", "URL", "tick", "ping", "--cron", "61 * * * *"),
        ("schedule", "add", "URL", "tick", "ping", "--cron", "* * * * *", "--timezone", "X/Y"),
        ("schedule", "add", "URL", "tick", "ping", "--every", "5m", "--missed", "some"),
        ("schedule", "rm", "URL", ""),
        ("claim", "URL", "--lease", "0"),
        ("claim", "URL", "--lease", "8d"),
        ("claim", "URL", "--lease", "long"),
        ("token",),
        ("token", "create", "URL", "--name", "ci"),
        ("token", "create", "URL", "--rights", "push"),
        ("token", "create", "URL", "--name", "", "--rights", "push"),
        ("token", "create", "URL", "--name", "ci", "--rights", ""),
        ("token", "create", "URL", "--name", "ci", "--rights", "push,everything"),
        ("token", "create", "URL", "--name", "ci", "--rights", "push", "--ttl", "0"),
        ("token", "create", "URL", "--name", "ci", "--rights", "push", "--ttl", "long"),
        ("token", "revoke", "URL"),
        ("token", "revoke", "URL", "nonsense"),
        ("import", "URL"),
        ("import", "URL", "nowhere.jsonl"),
        ("restore", "URL", "nowhere.json"),
    ],
)
def test_invalid_arguments_are_rejected_and_change_nothing(
    console: Console, words: tuple[str, ...]
) -> None:
    console.ok("create", "URL")
    before = console.path.read_bytes()
    ran = console.run(*words)
    assert ran.code == 2, ran
    assert "Traceback" not in ran.err
    assert console.path.read_bytes() == before


def test_a_missing_or_unreadable_payload_is_reported(console: Console) -> None:
    assert "name the kind" in console.run("push", "URL").err
    assert "no payload" in console.run("push", "URL", "k").err
    assert "no payload" in console.run("push", "URL", "k", stdin=b"\n").err
    assert "number out of range" in console.run("push", "URL", "k", "[1e400]").err
    console.ok("push", "URL", "k", "--as", "text")


def test_a_typo_gets_a_suggestion(console: Console) -> None:
    assert "'push'" in console.run("psuh").err


def test_a_directory_in_place_of_a_queue_is_reported(console: Console) -> None:
    console.path.mkdir()
    ran = console.run("stats", "URL")
    assert (ran.code, len(ran.err.splitlines())) == (4, 1)
    assert "directory" in ran.err


def test_an_object_that_is_not_a_queue_is_never_overwritten(console: Console) -> None:
    for text in ("", "<html><body>404</body></html>", "[]", '{"format": 99}'):
        console.path.write_text(text)
        for words in (
            ("push", "URL", "k", "1"),
            ("stats", "URL"),
            ("config", "URL", "lease_s=60"),
            ("edit", "URL"),
        ):
            ran = console.run(*words)
            assert (ran.code, len(ran.err.splitlines())) == (6, 1), (text, words, ran)
        assert console.run("create", "URL").code == 4
        assert console.path.read_text() == text

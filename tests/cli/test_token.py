"""``bucketq token``: what is printed, what is not, and the exit codes."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from bucketq.model.tokens import parse_token, token_digest
from tests.cli.console import Console, Ran


@pytest.fixture
def queue(console: Console) -> Console:
    console.ok("create", "URL")
    return console


def create(console: Console, *options: str) -> Ran:
    return console.ok("token", "create", "URL", "--name", "ci", "--rights", "claim,push", *options)


def test_only_the_token_is_printed_on_stdout_and_notes_on_stderr(queue: Console) -> None:
    ran = create(queue)
    token = ran.out.removesuffix("\n")
    assert parse_token(token)
    assert "not shown again" in ran.err
    assert "from now on the brokers of this queue require a token" in ran.err
    assert token not in ran.err
    assert queue.ok("config", "URL", "--json").json["require_token"] is True


def test_only_the_digest_of_a_token_is_in_the_object(queue: Console) -> None:
    token = create(queue).out.strip()
    body = queue.path.read_text()
    assert token_digest(token) in body
    assert token.rpartition("_")[2] not in body


def test_a_queue_that_requires_no_token_is_not_reported_to_require_one(queue: Console) -> None:
    create(queue)
    queue.ok("config", "URL", "require_token=false")
    ran = create(queue)
    assert "not shown again" in ran.err
    assert "from now on" not in ran.err
    assert create(queue, "--quiet").err == ""


def test_a_script_reads_the_token_from_json(queue: Console) -> None:
    made = create(queue, "--json").json
    assert made["id"] == parse_token(made["token"])
    assert sorted(made) == ["id", "token"]


def test_tokens_are_listed_without_their_secrets(queue: Console) -> None:
    lasting = create(queue).out.strip()
    passing = create(queue, "--ttl", "90d").out.strip()
    for listing in (queue.ok("token", "list", "URL"), queue.ok("token", "list", "URL", "--json")):
        for token in (lasting, passing):
            assert parse_token(token) in listing.out
            assert token.rpartition("_")[2] not in listing.out
            assert token_digest(token) not in listing.out
    first, second = queue.ok("token", "list", "URL", "--json").lines
    assert sorted(first) == ["created_at", "id", "name", "rights"]
    assert (first["name"], first["rights"]) == ("ci", ["push", "claim"])
    lifetime = datetime.fromisoformat(second["expires_at"]) - datetime.fromisoformat(
        second["created_at"]
    )
    assert lifetime.days == 90
    assert "push,claim" in queue.ok("token", "list", "URL").out


def test_a_token_is_revoked_once(queue: Console) -> None:
    token_id = parse_token(create(queue).out.strip())
    assert queue.ok("token", "revoke", "URL", token_id).out == f"token {token_id} is revoked\n"
    again = queue.run("token", "revoke", "URL", token_id)
    assert (again.code, again.out) == (3, "")
    assert f"there is no token {token_id}" in again.err
    as_json = queue.run("token", "revoke", "URL", token_id, "--json")
    assert (as_json.code, as_json.json) == (3, {"id": token_id, "revoked": False})
    assert queue.ok("token", "list", "URL", "--json").lines == []
    assert queue.ok("config", "URL", "--json").json["require_token"] is True


def test_a_whole_token_in_place_of_an_id_is_not_printed(queue: Console) -> None:
    token = create(queue).out.strip()
    for options in ((), ("--json",), ("--debug",)):
        ran = queue.run("token", "revoke", "URL", token, *options)
        assert ran.code == 2
        assert token not in ran.err + ran.out
    assert len(queue.ok("token", "list", "URL", "--json").lines) == 1


def test_no_other_command_shows_a_digest(queue: Console) -> None:
    digest = token_digest(create(queue).out.strip())
    queue.ok("push", "URL", "mail", "1")
    for words in (("stats",), ("ls", "--all"), ("config",), ("doctor",)):
        for options in ((), ("--json",)):
            ran = queue.run(words[0], "URL", *words[1:], *options)
            assert digest not in ran.out + ran.err


def test_token_create_does_not_create_a_queue(console: Console) -> None:
    ran = console.run("token", "create", "URL", "--name", "ci", "--rights", "push")
    assert (ran.code, ran.out) == (3, "")
    assert not console.path.exists()


def test_boolean_settings_are_shown_as_json(queue: Console) -> None:
    assert queue.ok("config", "URL", "require_token=true", "--json").json["require_token"] is True
    lines = queue.ok("config", "URL").out.splitlines()
    (line,) = [line for line in lines if line.startswith("require_token")]
    assert line.split() == ["require_token", "true", "false"]
    for value in ("1", "yes", '"true"', "null"):
        ran = queue.run("config", "URL", f"require_token={value}", "--json")
        assert ran.code == 2
        assert "require_token" in json.loads(ran.err)["error"]

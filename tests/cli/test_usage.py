"""Usage errors, and the address that comes from the environment."""

from __future__ import annotations

import json

import pytest

from tests.cli.console import Console


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("ls", "URL", "--limit", "0", "--json"), "--limit"),
        (("ls", "URL", "--json", "--frobnicate"), "--frobnicate"),
        (("complete", "URL", "--json"), "JOB"),
        (("stats", "--json"), "URL"),
        (("frobnicate", "--json"), "frobnicate"),
        (("--frobnicate", "stats", "--json"), "--frobnicate"),
        (("archive", "frobnicate", "--json"), "frobnicate"),
        (("archive", "ls", "URL", "--limit", "x", "--json"), "--limit"),
    ],
)
def test_usage_errors_are_json_with_json(
    console: Console, words: tuple[str, ...], reason: str
) -> None:
    ran = console.run(*words)
    assert (ran.code, ran.out) == (2, "")
    reported = json.loads(ran.err)
    assert (reported["kind"], reported["exit_code"]) == ("UsageError", 2)
    assert reason in reported["error"]


def test_usage_errors_are_text_by_default(console: Console) -> None:
    for words in (("ls", "URL", "--limit", "0"), ("push", "URL", "k", "1", "--", "2", "--json")):
        ran = console.run(*words)
        assert ran.code == 2
        assert ran.err.startswith("Usage: ")


@pytest.mark.parametrize(
    ("given", "reason"),
    [("x", "'x' is not an integer."), ("", "'' is not"), ("0", "0 is less than 1.")],
)
def test_a_number_that_is_none_or_too_small_is_named(
    console: Console, given: str, reason: str
) -> None:
    ran = console.run("ls", "URL", "--limit", given)
    assert ran.code == 2
    assert f"Invalid value for '--limit' / '-n': {reason}" in ran.err


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("push", "URL [KIND] [PAYLOAD]"), ("serve", "URL..."), ("redrive", "URL [JOB...]")],
)
def test_help_shows_arguments_as_manual_pages_do(
    console: Console, command: str, arguments: str
) -> None:
    shown = console.ok(command, "--help").out
    assert shown.partition("\n")[0].endswith(f" {command} [OPTIONS] {arguments}")
    listed = shown.partition("\nArguments:\n")[2].partition("\n\n")[0]
    assert "required" not in listed, "BUCKETQ_URL may replace the address"


ADDRESSLESS = [
    ("push", "email", '{"to": "ada"}'),
    ("push", "email"),
    ("push",),
    ("stats",),
    ("ls", "--kind", "email"),
    ("show", "my-job"),
    ("complete", "my-job", "my-lease"),
    ("config", "lease_s=60"),
    ("import", "jobs.jsonl"),
    ("restore", "copy.json"),
    ("stats", "queue"),
    ("serve",),
    ("archive", "ls"),
    ("consumer", "remove", "spark"),
]


@pytest.mark.parametrize("words", ADDRESSLESS, ids=" ".join)
def test_without_an_address_the_error_names_the_variable(
    console: Console, words: tuple[str, ...]
) -> None:
    ran = console.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: ")
    assert "address of the queue is missing" in ran.err
    assert "BUCKETQ_URL" in ran.err
    reported = json.loads(console.run(*words, "--json").err)
    assert "BUCKETQ_URL" in reported["error"]
    assert reported["kind"] == "UsageError"


def test_a_path_in_place_of_the_address_is_shown_as_an_address(console: Console) -> None:
    ran = console.run("stats", str(console.path))
    assert ran.code == 2
    assert f"write it as file://{console.path}" in ran.err


def test_an_invalid_option_is_reported_before_a_missing_address(console: Console) -> None:
    assert "--frobnicate" in console.run("push", "email", "--frobnicate").err
    assert console.run("push", "--help").code == 0


def test_a_possible_password_is_not_printed(console: Console) -> None:
    ran = console.run("stats", "ada:secret@bucket/queue.json")
    assert (ran.code, "secret" in ran.err + ran.out) == (2, False)


def test_serve_ignores_the_variable_if_an_address_is_given(console: Console) -> None:
    other = (console.folder / "other.json").as_uri()
    named = f"jobs={console.url}"
    ran = console.spawn("serve", named, "--idle-exit", "0.5s", env={"BUCKETQ_URL": other})
    assert ran.out.startswith("serving jobs at "), ran
    assert not (console.folder / "other.json").exists()


def test_a_single_address_is_the_second_one_if_the_variable_is_set(
    console: Console,
) -> None:
    env = {"BUCKETQ_URL": console.url}
    old = Console(console.folder / "old")
    old.ok("push", "URL", "k", "1", "--id", "job")
    assert console.run("import", old.url, "--batch", "5", env=env).code == 0
    assert console.ok("show", "URL", "job", "--json").json["payload"] == 1
    copy = (console.folder / "copy.json").as_uri()
    assert console.run("backup", copy, env=env).code == 0
    assert console.run("restore", "--replace", copy, env=env).code == 0
    assert console.run("backup", "copy-2.json", env=env).code == 0
    third = (console.folder / "third.json").as_uri()
    assert console.run("restore", third, "copy-2.json", env=env).code == 0
    assert "third.json" in {path.name for path in console.folder.iterdir()}


def test_a_single_address_is_that_of_the_queue_if_there_is_no_second_one(console: Console) -> None:
    old = Console(console.folder / "old")
    old.ok("push", "URL", "k", "1")
    env = {"BUCKETQ_URL": console.url}
    assert console.run("stats", old.url, env=env).code == 0
    assert "Missing argument" in console.run("show", old.url, env=env).err


def test_a_timeout_is_a_duration_like_any_other(console: Console) -> None:
    console.ok("create", "URL")
    console.ok("stats", "URL", "--timeout", "2m")
    ran = console.run("stats", "URL", "--timeout", "soon")
    assert (ran.code, "--timeout: 'soon' is not a duration" in ran.err) == (2, True)

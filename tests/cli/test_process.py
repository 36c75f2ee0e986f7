"""The console script as a process: its start, its signals, its pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.console import TIMEOUT_S, Console, finish
from tests.environ import ROOT, child_environ


def python(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def wait_until_at_work(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has read its queue, which it does in a thread."""
    status = Path(f"/proc/{process.pid}/status")
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if status.exists() and "Threads:\t1\n" not in status.read_text():
            break
        time.sleep(0.05)
    time.sleep(0.5)


def test_the_main_flow_in_processes_of_their_own(console: Console) -> None:
    env = {"BUCKETQ_URL": console.url}
    pushed = console.spawn("push", "mail", '{"to": "ada"}', env=env)
    assert (pushed.code, pushed.err) == (0, "")
    job = console.spawn("claim", "--json", env=env).json
    assert job["id"] == pushed.out.strip()
    assert console.spawn("complete", job["id"], job["lease"], env=env).code == 0
    assert console.spawn("stats", "--json", env=env).json["totals"]["done"] == 1


def test_help_is_quick_and_lists_every_exit_code(console: Console) -> None:
    program = (
        "import resource, sys\n"
        "sys.argv = ['bucketq', '--help']\n"
        "from bucketq.cli import main\n"
        "try:\n    main()\n"
        "finally:\n"
        "    heavy = {'rich', 'obstore', 'pydantic'} & sys.modules.keys()\n"
        "    print(heavy, resource.getrusage(resource.RUSAGE_SELF).ru_utime, file=sys.stderr)\n"
    )
    ran = python(program)
    assert ran.returncode == 0
    for code in (0, 1, 2, 3, 4, 5, 6, 130):
        assert f"\n    {code:>3}  " in ran.stdout
    heavy, _, seconds = ran.stderr.rpartition(" ")
    assert heavy == "set()"
    # Half a second of a quiet machine; this one may be busy, and slow at that.
    assert float(seconds) < 1.5
    del console


def test_without_the_extra_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None\nfrom bucketq.cli import main\nmain()"
    ran = python(program)
    assert ran.returncode == 1
    assert ran.stderr == 'the command line is not installed: pip install "bucketq[cli]"\n'


def test_the_module_can_be_run_and_prints_its_version() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bucketq.cli", "--version"],
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.stdout.startswith("bucketq ")


def test_completion_knows_the_commands(console: Console) -> None:
    env = {"_BUCKETQ_COMPLETE": "complete_bash", "COMP_WORDS": "bucketq re", "COMP_CWORD": "1"}
    ran = console.spawn(env=env)
    assert set(ran.out.split()) == {"release", "resume", "redrive", "restore", "repair"}


def test_ctrl_c_ends_a_claim_that_waits_and_leaves_nothing_behind(console: Console) -> None:
    console.ok("create", "URL")
    process = console.start("claim", "URL", "--wait", "60s")
    wait_until_at_work(process)
    process.send_signal(signal.SIGINT)
    ran = finish(process)
    assert ran.code == 130
    assert "Traceback" not in ran.err
    assert "stopped" in ran.err
    assert console.ok("stats", "URL", "--json").json["totals"]["running"] == 0


def test_after_ctrl_c_a_push_prints_how_to_make_sure(console: Console) -> None:
    console.ok("create", "URL")
    program = (
        "import asyncio, sys\n"
        "from bucketq.store.local import LocalStore\n"
        "async def mute(*_):\n    await asyncio.Event().wait()\n"
        "LocalStore.replace = mute\n"
        "from bucketq.cli import main\nmain()"
    )
    process = console.launch(sys.executable, "-c", program, "push", console.url, "k", "1")
    wait_until_at_work(process)
    process.send_signal(signal.SIGINT)
    ran = finish(process)
    assert ran.code == 130
    assert "Traceback" not in ran.err
    words = ("push", "URL", "k", "1", "--id", ran.err.split("--id ")[1].strip())
    assert console.ok(*words).out == console.ok(*words).out
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 1


def test_a_reader_may_close_the_pipe_early(console: Console) -> None:
    lines = b"".join(b'{"n": %d}\n' % number for number in range(3000))
    (console.folder / "jobs.jsonl").write_bytes(lines)
    console.ok("push", "URL", "n", "--bulk", "--file", "jobs.jsonl")
    process = console.start("ls", "URL", "--all", "--json")
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.wait(50)
    process.stderr.close()
    assert errors == b""
    assert process.returncode == 141


def test_an_output_on_a_full_disk_is_reported(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    with Path("/dev/full").open("w") as full:
        process = console.start("export", "URL", stdout=full.fileno())
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert b"cannot write the output: No space left on device" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_rejected(console: Console) -> None:
    secret = console.folder / "secret.json"
    secret.write_text("1")
    secret.chmod(0)
    assert console.run("push", "URL", "k", "--file", str(secret)).code == 2


def test_an_unreachable_store_times_out_and_the_error_shows_how_to_retry(console: Console) -> None:
    program = (
        "import asyncio, sys\n"
        "from bucketq.store.local import LocalStore\n"
        "async def mute(*_):\n    await asyncio.Event().wait()\n"
        "LocalStore.replace = mute\n"
        "from bucketq.cli import main\nsys.argv[0] = 'bucketq'\nmain()"
    )
    console.ok("create", "URL")
    ran = python(program, "push", console.url, "k", "1", "--timeout", "0.5")
    assert ran.returncode == 5
    assert "the outcome is unknown" in ran.stderr
    token = ran.stderr.split("--request ")[1].strip()
    first = console.ok("push", "URL", "k", "1", "--request", token).out
    assert console.ok("push", "URL", "k", "1", "--request", token).out == first
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 1


def test_debug_shows_where_it_went_wrong(console: Console) -> None:
    ran = console.run("stats", "URL", "--debug")
    assert "Traceback" in ran.err
    assert ran.code == 3


def test_an_unexpected_error_is_reported_without_a_traceback(console: Console) -> None:
    console.ok("create", "URL")
    program = (
        "import sys\nfrom bucketq.queue.queue import Queue\n"
        "async def broken(*_):\n    raise ZeroDivisionError('oops')\n"
        "Queue.stats = broken\n"
        "from bucketq.cli import main\nsys.argv[0] = 'bucketq'\n"
        "main()"
    )
    ran = python(program, "stats", console.url)
    assert ran.returncode == 1
    assert ran.stderr == "bucketq: unexpected ZeroDivisionError: oops; --debug shows where\n"


def test_the_script_is_declared(console: Console) -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'bucketq = "bucketq.cli:main"' in text
    assert Path(sys.executable).with_name("bucketq").exists()
    del console

"""The commands, in the order in which ``bucketq --help`` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from bucketq.cli import archive, care, consumer, exits, look, operate, token, work
from bucketq.cli.command import CommandGroup, QueueCommand, as_command, help_of
from bucketq.cli.compact import compact
from bucketq.cli.doctor import doctor
from bucketq.cli.edit import edit
from bucketq.cli.import_jobs import import_jobs
from bucketq.cli.push import push
from bucketq.cli.replay import replay
from bucketq.cli.report import report
from bucketq.cli.run_worker import work as run_worker
from bucketq.cli.serve import serve

COMMANDS: dict[str, Callable[..., Any]] = {
    "push": push,
    "import": import_jobs,
    "claim": work.claim,
    "heartbeat": work.heartbeat,
    "complete": work.complete,
    "fail": work.fail,
    "release": work.release,
    "serve": serve,
    "work": run_worker,
    "stats": look.stats,
    "ls": look.ls,
    "show": look.show,
    "cancel": operate.cancel,
    "pause": operate.pause,
    "resume": operate.resume,
    "dead": look.dead,
    "redrive": operate.redrive,
    "purge": operate.purge,
    "config": operate.config,
    "create": care.create,
    "delete": care.delete,
    "backup": care.backup,
    "restore": care.restore,
    "edit": edit,
    "repair": care.repair,
    "doctor": doctor,
}
ARCHIVE_COMMANDS: dict[str, Callable[..., Any]] = {
    "ls": archive.ls,
    "cat": archive.cat,
    "flush": archive.flush,
    "prune": archive.prune,
    "collect": archive.collect,
    "compact": compact,
    "report": report,
    "replay": replay,
}
TOKEN_COMMANDS: dict[str, Callable[..., Any]] = {
    "create": token.create,
    "list": token.list_tokens,
    "revoke": token.revoke,
}
CONSUMER_COMMANDS: dict[str, Callable[..., Any]] = {
    "list": consumer.list_consumers,
    "remove": consumer.remove,
}

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_CODES = "\n".join(
    ["\b", "Exit codes:", *(f"  {code:>3}  {text}" for code, text in exits.MEANING.items())]
)
_EXAMPLES = "\n".join(
    [
        "\b",
        "Examples:",
        """  bucketq push file:///srv/jobs/queue.json email '{"to": "ada@example.org"}'""",
        "  bucketq claim file:///srv/jobs/queue.json --kind email --json",
        "  export BUCKETQ_URL=s3://bucket/jobs/queue.json; bucketq stats",
    ]
)
_ENVIRONMENT = "\n".join(
    [
        "\b",
        "Environment, for brokers that ask for it:",
        "  BUCKETQ_TOKEN      the token to show",
        "  BUCKETQ_TLS_CA     certificates by which brokers are known (PEM)",
        "  BUCKETQ_TLS_CERT   the client's own certificate, and BUCKETQ_TLS_KEY its key",
        "  BUCKETQ_TLS_NAME   the name in the broker's certificate, if it is not its host",
        "  BUCKETQ_NETWORKS   where brokers may be, like 10.0.0.0/8,192.168.7.0/24",
        "  BUCKETQ_INSECURE   1: show the token to other hosts in plaintext too",
    ]
)
_ARCHIVE_EXAMPLES = "\n".join(
    [
        "\b",
        "Examples:",
        "  bucketq archive ls s3://bucket/jobs/queue.json --since 2h",
        "  bucketq archive cat s3://bucket/jobs/queue.json --since 7d --kind email > email.jsonl",
        "  bucketq archive compact s3://bucket/jobs/queue.json",
        "  bucketq archive report s3://bucket/jobs/queue.json --from 7d --html report.html",
        "  bucketq archive replay s3://bucket/jobs/queue.json --where \"kind = 'index'\"",
    ]
)

_TOKEN_EXAMPLES = "\n".join(
    [
        "\b",
        "Examples:",
        "  bucketq token create s3://bucket/jobs/queue.json --name ci --rights push --ttl 90d",
        "  bucketq token list s3://bucket/jobs/queue.json",
        "  bucketq token revoke s3://bucket/jobs/queue.json 4f1e09ab",
    ]
)

_CONSUMER_EXAMPLES = "\n".join(
    [
        "\b",
        "Examples:",
        "  bucketq consumer list s3://bucket/jobs/queue.json",
        "  bucketq consumer remove s3://bucket/jobs/queue.json spark-orders",
    ]
)


def _group(description: str, epilog: str) -> typer.Typer:
    return typer.Typer(
        cls=CommandGroup,
        help=description,
        epilog=epilog,
        context_settings=_SETTINGS,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def _add(group: typer.Typer, commands: dict[str, Callable[..., Any]]) -> None:
    for name, function in commands.items():
        text, examples = help_of(function)
        register = group.command(
            name, cls=QueueCommand, help=text, epilog=examples, context_settings=_SETTINGS
        )
        register(as_command(function))


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from importlib.metadata import version

        print(f"bucketq {version('bucketq')}")
        raise typer.Exit


app = _group(
    "A distributed job queue whose whole state is one JSON object on object storage.",
    f"{_EXAMPLES}\n\n{_ENVIRONMENT}\n\n{_CODES}",
)


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A distributed job queue whose whole state is one JSON object on object storage."""
    del version


_add(app, COMMANDS)
_archive = _group("Finished jobs, by the time at which they finished.", _ARCHIVE_EXAMPLES)
_add(_archive, ARCHIVE_COMMANDS)
app.add_typer(_archive, name="archive")
_token = _group("Who may talk to the brokers of a queue, and do what.", _TOKEN_EXAMPLES)
_add(_token, TOKEN_COMMANDS)
app.add_typer(_token, name="token")
_consumer = _group("Engines that claim numbered batches of jobs.", _CONSUMER_EXAMPLES)
_add(_consumer, CONSUMER_COMMANDS)
app.add_typer(_consumer, name="consumer")

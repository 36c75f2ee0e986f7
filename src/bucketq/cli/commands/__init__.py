"""The commands, one file each, in the folders by which ``bucketq --help`` groups them.

A file has the name of its command and a function ``run``, whose docstring is the help of the
command. A folder within a group, like ``storage/archive``, is a command with commands of its own,
and its docstring is the help of it. The summaries stand here as well, so that ``--help`` prints
them without importing every command; a test compares them with the docstrings.
"""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "producers": {
        "push": "Push a job and print its id; with --bulk, one for each line.",
        "import": "Push jobs from a file, or from another queue.",
    },
    "workers": {
        "work": "Run a worker of yours: claim jobs and call their handlers.",
        "claim": "Take jobs to work on, and print them with their leases.",
        "heartbeat": "Say that a job is still being worked on.",
        "complete": "Finish a job, with an optional result.",
        "fail": "Report that an attempt failed; it is tried again, or dead.",
        "release": "Give a job back unharmed; it costs none of its attempts.",
        "consumer": "Engines that claim numbered batches of jobs.",
    },
    "brokers": {
        "serve": "Serve queues: commit for everybody who asks, until it is stopped.",
        "token": "Who may talk to the brokers of a queue, and do what.",
    },
    "monitoring": {
        "stats": "Count jobs by kind and status; tell how the queue is doing.",
        "ls": "List jobs in the order in which they were pushed.",
        "show": "Show one job: its fields, payload, result and errors.",
        "dead": "List dead jobs with their last error.",
    },
    "operations": {
        "cancel": "Cancel a waiting job; ask the worker of a running one to stop.",
        "pause": "Hand out no more jobs of a kind, or none at all.",
        "resume": "Undo the pause of a kind, or every pause.",
        "redrive": "Give dead jobs a new life, with all their attempts.",
        "purge": "Finish dead jobs for good.",
        "config": "Show the settings of a queue, or change some.",
    },
    "storage": {
        "create": "Create an empty queue.",
        "delete": "Delete a queue, with all jobs in it.",
        "backup": "Save a verified copy of the queue, to a file or an object.",
        "restore": "Bring a saved copy back, as a new incarnation of the queue.",
        "edit": "Change the object in $VISUAL or $EDITOR.",
        "repair": "Say what is wrong with the object, or accept it as it is.",
        "doctor": "Check whether a store is fit for a queue.",
        "archive": "Finished jobs, by the time at which they finished.",
    },
}
"""The commands of each folder, in the order of ``--help``."""

SUBCOMMANDS: dict[str, dict[str, str]] = {
    "archive": {
        "ls": "List finished jobs of a range of time, each once.",
        "cat": "Print finished jobs of a range of time as JSON lines, each once.",
        "flush": "Archive everything that is finished now.",
        "prune": "Delete archived jobs that are too old, in whole hours.",
        "collect": "Delete segments that a crash left and that repeat others.",
        "compact": "Turn old segments into Parquet, as a Delta table beside them.",
        "report": "Measure finished jobs: throughput, times, retries, failures.",
        "replay": "Push finished or dead jobs again that match a condition, once.",
    },
    "token": {
        "create": "Make a token and print it, this once.",
        "list": "List the tokens that are good.",
        "revoke": "Take a token back.",
    },
    "consumer": {
        "list": "List the consumers, and the last batch of each.",
        "remove": "Give back what a consumer holds, and forget it.",
    },
}
"""The commands of a command, by its name."""


def module_of(*words: str) -> str:
    """The module of a command, like ``("archive", "ls")``."""
    group = next(group for group, commands in GROUPS.items() if words[0] in commands)
    # The name of a module cannot be a keyword.
    names = ("import_" if word == "import" else word for word in words)
    return ".".join((__name__, group, *names))

"""The commands, one file each, in folders that match the groups of ``bucketq --help``.

A file has the name of its command and a function ``run``, whose docstring is the help of the
command. A folder within a group, like ``storage/archive``, is a command with subcommands; its
docstring is the help. The summaries are repeated here, so that ``--help`` prints them without
importing every command; a test compares them with the docstrings.
"""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "producers": {
        "push": "Push a job and print its id; with --bulk, one job per line.",
        "import": "Push jobs from a file or another queue.",
        "wait": "Wait until a job is over and print its result.",
    },
    "workers": {
        "work": "Run a worker: claim jobs and call their handlers.",
        "claim": "Claim jobs and print them with their leases.",
        "heartbeat": "Renew the lease of a job.",
        "complete": "Complete a job, with an optional result.",
        "fail": "Report a failed attempt; the job is retried or becomes dead.",
        "release": "Return a job to the queue without using up an attempt.",
        "consumer": "Manage consumers, which claim numbered batches of jobs.",
    },
    "brokers": {
        "serve": "Run a broker for one or more queues.",
        "token": "Manage access tokens.",
    },
    "monitoring": {
        "dashboard": "Serve a web page that shows and operates queues.",
        "stats": "Count jobs by kind and status.",
        "top": "Show queues and kinds in a live table with keys.",
        "tail": "Print what happens to jobs as it is committed.",
        "queues": "List the queues under a folder, with their depth, age and broker.",
        "ls": "List jobs in the order in which they were pushed.",
        "show": "Show one job: its fields, payload, result and errors.",
        "dead": "List dead jobs with their last error.",
        "workers": "List the workers that were heard lately.",
        "audit": "List what operators did to a queue: who, when, and to what.",
        "history": "Show what changed a queue, or delete old parts of its history.",
        "diff": "Compare two versions of a queue.",
    },
    "operations": {
        "cancel": "Cancel a queued job, or ask the worker of a running one to stop.",
        "priority": "Change the priority of a job that waits.",
        "pause": "Stop handing out jobs, of one kind or of all.",
        "resume": "Hand out jobs again after a pause.",
        "redrive": "Queue dead jobs again, with all their attempts.",
        "purge": "Move dead jobs to the archive.",
        "config": "Show or change the settings of a queue.",
        "drain": "Ask a worker to finish its jobs and exit, as on SIGTERM.",
        "schedule": "Manage schedules, by which a queue pushes jobs by itself.",
        "batch": "Manage batches, which push a job when all their jobs have ended.",
        "limit": "Limit how many jobs of a kind or group run, or start in a period.",
    },
    "storage": {
        "create": "Create an empty queue.",
        "delete": "Delete a queue and all its jobs.",
        "backup": "Save a verified copy of a queue to a file or an object.",
        "export": "Write a queue with all its jobs to a file or stdout, in format 1.",
        "restore": "Restore a queue from a saved copy.",
        "edit": "Edit the object of a queue in $VISUAL or $EDITOR.",
        "repair": "Diagnose a damaged object, or accept it after a manual edit.",
        "upgrade": "Let a queue keep jobs in segments, so that its object stays small.",
        "gc": "Delete segments that a deep queue no longer needs.",
        "doctor": "Check whether a store can hold a queue.",
        "archive": "Read and maintain the archive of finished jobs.",
    },
}
"""The commands of each folder, in the order of ``--help``."""

SUBCOMMANDS: dict[str, dict[str, str]] = {
    "archive": {
        "ls": "List the jobs that finished in a time range.",
        "cat": "Print the jobs that finished in a time range as JSON lines.",
        "flush": "Archive all finished jobs now.",
        "prune": "Delete old archived jobs, in whole hours.",
        "collect": "Delete duplicate archive files that a crash left behind.",
        "compact": "Convert old archive files to a Delta table of Parquet files.",
        "report": "Report throughput, latency, retries and failures.",
        "replay": "Push archived jobs that match a condition again, once each.",
    },
    "history": {
        "ls": "List the versions of a queue, with the requests that made them.",
        "purge": "Delete what the history has of versions before a version or a time.",
    },
    "schedule": {
        "add": "Add a schedule, or change the one of this name.",
        "ls": "List the schedules, with the next due time of each.",
        "rm": "Remove a schedule.",
        "pause": "Push no more jobs of a schedule, until it is resumed.",
        "resume": "Push jobs of a schedule again after a pause.",
        "run": "Push the job of a schedule now and print its id, paused or not.",
    },
    "batch": {
        "open": "Open a batch and print its id.",
        "ls": "List the batches, with how many of their jobs have ended.",
        "show": "Show one batch: its counts, and what is pushed at its end.",
        "close": "Close a batch, so that it is done when all its jobs have ended.",
        "cancel": "End a batch without its callback.",
    },
    "limit": {
        "set": "Set the limit of a kind or a group.",
        "ls": "List the limits, and how near each is.",
        "rm": "Remove the limit of a kind or a group.",
    },
    "token": {
        "create": "Create a token and print it once.",
        "list": "List the valid tokens.",
        "revoke": "Revoke a token.",
    },
    "consumer": {
        "list": "List the consumers and the last batch of each.",
        "remove": "Release the jobs of a consumer and forget it.",
    },
}
"""The commands of a command, by its name."""
DEFAULTS = {"history": "ls", "limit": "set"}
"""The command that is meant if a command with commands is given something else."""


def module_of(*words: str) -> str:
    """The module of a command, like ``("archive", "ls")``."""
    group = next(group for group, commands in GROUPS.items() if words[0] in commands)
    # The name of a module cannot be a keyword.
    names = ("import_" if word == "import" else word for word in words)
    return ".".join((__name__, group, *names))

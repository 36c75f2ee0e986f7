"""Spark in processes of its own: a standalone master with two workers, and a Connect server.

Each is started when it is first asked for, listens on loopback with ports that are free, and ends
with the tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.servers.process import Child

HOST = "127.0.0.1"
EXECUTORS = "local-cluster[2,1,1024]"
"""Two processes of one core, started by the driver, which replaces one that is killed."""
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
"""Two, because Spark runs a copy of a slow task on another host only. All of 127/8 is loopback."""
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ANY_PORT = ("--port", "0", "--webui-port", "0")
_MASTER_AT = re.compile(rb"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(rb"Successfully registered with master (\S+)")
_CONNECT_AT = re.compile(rb"Spark Connect server started at: \S+:(\d+)")


def start_standalone(stack: ExitStack, folder: Path, environ: Mapping[str, str]) -> str:
    """Start a master and two workers of one core each; return the master's address."""
    opts = "-Dspark.master.rest.enabled=false"
    environ = {**environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": opts}
    log = folder / "master.log"
    master = _start(stack, [_MASTER, "--host", HOST, *_ANY_PORT], log, environ)
    address = _said(master, log, _MASTER_AT)
    workers = []
    for number, host in enumerate(WORKER_HOSTS):
        log = folder / f"worker{number}.log"
        share = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}")]
        command = [_WORKER, "--host", host, *_ANY_PORT, *share, address]
        workers.append((_start(stack, command, log, {**environ, "SPARK_LOCAL_IP": host}), log))
    for worker, log in workers:
        _said(worker, log, _REGISTERED)
    return address


def start_connect(
    stack: ExitStack, folder: Path, environ: Mapping[str, str], config: Mapping[str, str]
) -> str:
    """Start a Connect server with two executors; return its address."""
    log = folder / "connect.log"
    # It logs its address at this level.
    settings = {**config, "spark.connect.grpc.binding.port": "0", "spark.log.level": "INFO"}
    submit = ["org.apache.spark.deploy.SparkSubmit", "--master", EXECUTORS, "--class", _CONNECT]
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    server = _start(stack, [*submit, "spark-internal"], log, environ)
    return f"sc://{HOST}:{_said(server, log, _CONNECT_AT)}"


def _start(stack: ExitStack, command: list[str], log: Path, environ: Mapping[str, str]) -> Child:
    program = Path(environ["SPARK_HOME"], "bin", "spark-class")
    child = Child([str(program), *command], log, environ)
    stack.callback(child.stop)
    return child


def _said(child: Child, log: Path, what: re.Pattern[bytes]) -> str:
    """Wait until a pattern is in a log, and return its first group."""
    child.wait_until(lambda: what.search(log.read_bytes()) is not None)
    found = what.search(log.read_bytes())
    assert found is not None
    return found[1].decode()

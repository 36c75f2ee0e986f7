"""``bucketq serve``: run a broker for one or more queues, or for all queues under a folder."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from bucketq.admin import QueueObject
from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.cli.broker_security import check_listen, check_token_required, outgoing, server_tls
from bucketq.cli.dashboard_process import dashboard_process
from bucketq.cli.metrics_options import Metrics, MetricsListener, metrics_listener
from bucketq.cli.opening import partitions_at
from bucketq.cli.parameters import argument, option
from bucketq.cli.parsing import check_timeout, parse_duration
from bucketq.cli.queue_names import name_and_url
from bucketq.cli.segment_access import refused_segments
from bucketq.cli.terminal.log import LineHandler, form_of, level_of, log_to, to_stderr
from bucketq.cli.terminal.output import Output, counted
from bucketq.clock import Clock, SystemClock
from bucketq.commit.objects.register import Register
from bucketq.errors import InvalidRequestError
from bucketq.model.partitions import Partition
from bucketq.process_memory import collect_rarely, keep_large_blocks
from bucketq.store.measured_store import MeasuredStore, OnRequest
from bucketq.store.queue_search import QueueFolder, is_folder
from bucketq.store.url import Location, open_store

if TYPE_CHECKING:
    from bucketq.broker.broker import Broker
    from bucketq.broker.folder_watch import FolderWatch
    from bucketq.broker.server import Server
    from bucketq.metrics.measured_register import MeasuredRegister
    from bucketq.rpc.credentials import ServerTls
    from bucketq.rpc.transport import Transport

_log = logging.getLogger("bucketq.serve")
# How often --idle-exit is checked: often enough for durations of a second.
_IDLE_CHECK_S = 0.5
# A second SIGTERM within this time is ignored: ``timeout`` sends two at once.
_ECHO_S = 0.25
# How long to wait until each queue has a broker before the address is printed anyway.
_OPEN_S = 10.0
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound
# More than the requests of many callers make between two commits.
_NEW_OBJECTS = 100_000


Urls = Annotated[
    list[str],
    argument(
        "URL...",
        "Addresses of queues, or NAME=URL; by default a queue is named after its object, "
        "or after the folder if the object is called queue.json. An address that ends in a slash "
        "means all queues under it.",
    ),
]
Listen = Annotated[str, option("--listen HOST:PORT", "Where to listen; port 0 picks a free one.")]
Advertise = Annotated[
    str, option("--advertise HOST:PORT", "The address for clients, if it differs.")
]
Takeover = Annotated[bool, option("--takeover", "Take over at once, even from a healthy broker.")]
IdleExit = Annotated[str, option("--idle-exit DURATION", "Exit after this long without clients.")]
TlsCert = Annotated[Path | None, option("--tls-cert FILE", "Use TLS with this certificate (PEM).")]
TlsKey = Annotated[Path | None, option("--tls-key FILE", "Private key of the certificate.")]
TlsClientCa = Annotated[
    Path | None,
    option(
        "--tls-client-ca FILE", "Accept only clients whose certificate is signed by one of these."
    ),
]
Insecure = Annotated[
    bool, option("--insecure", "Listen on other interfaces without TLS or authentication.")
]
Dashboard = Annotated[
    str,
    option(
        "--dashboard [HOST]:PORT", "Also serve the web page, as `bucketq dashboard --listen` does."
    ),
]


async def run(
    out: Output,
    *,
    url: Urls,
    listen: Listen = "127.0.0.1:0",
    advertise: Advertise = "",
    takeover: Takeover = False,
    idle_exit: IdleExit = "0",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Insecure = False,
    metrics: Metrics = "",
    dashboard: Dashboard = "",
) -> None:
    """Run a broker for one or more queues.

    It serves all partitions of a queue that has some, and shares them with other brokers.

    With a folder, like s3://bucket/jobs/, it serves every queue under it, and within some seconds
    those that are created later. Brokers of the same folder share its queues evenly.

    Several brokers may run for one queue: one leads, the others are standbys and take over if it
    fails. Clients find the leader through the queue's object. On Ctrl-C or SIGTERM, pending
    requests are committed before it exits. Beyond loopback, clients of --metrics need a
    certificate, or the token in BUCKETQ_METRICS_TOKEN.

    Examples:
        bucketq serve file:///srv/jobs/queue.json
        bucketq serve jobs=s3://bucket/jobs.json mail=s3://bucket/mail.json
        bucketq serve s3://bucket/jobs/
        bucketq serve file:///srv/jobs/queue.json --dashboard :7701
        bucketq serve s3://bucket/jobs.json --listen 10.0.0.7:7700 --tls-cert c.pem --tls-key k.pem
    """
    from bucketq.broker.server import Server
    from bucketq.rpc.address import is_loopback, this_host

    check_timeout(out.timeout_s)
    tls = server_tls(tls_cert, tls_key, tls_client_ca)
    transport = _transport(tls)
    _check_addresses(listen, advertise, tls, insecure=insecure)
    measured_at = metrics_listener(metrics, tls, insecure=insecure)
    idle_exit_s = parse_duration(idle_exit, "--idle-exit")
    # A broker's tracebacks contain no payloads, and its faults cannot be found without them.
    log_to(LineHandler(form_of(out), to_stderr, tracebacks=True), level=level_of(out))
    _tune_process()
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        server = Server(transport, clock, this_host())
        is_open = is_loopback(listen) or tls_client_ca is not None or insecure
        guarded = "" if is_open else listen
        on_request = await _start_metrics(measured_at, server, clock, stack)
        make = _BrokerMaker(server, transport, clock, takeover, guarded, out.timeout_s, on_request)
        found, watches = await _add_queues(server, url, make, clock, stack)
        stopped = _signals()
        await server.start(listen, advertise, tls=tls is not None)
        stack.push_async_callback(server.stop)
        for watch in watches:
            stack.callback(asyncio.create_task(watch.run()).cancel)
        await server.until_open(_OPEN_S)
        # With --quiet too: scripts wait for this line, and read the port from it.
        _report(out, server, url)
        if dashboard:
            page = dashboard_process(url, dashboard, tls, insecure=insecure)
            out.note(await stack.enter_async_context(page))
        probing = asyncio.create_task(_probe_segments(found, clock, out.timeout_s))
        stack.callback(probing.cancel)
        await _until_over(server, stopped, idle_exit_s)
        _log.info("stopping: committing pending requests")


async def _start_metrics(
    listener: MetricsListener | None, server: Server, clock: Clock, stack: AsyncExitStack
) -> OnRequest | None:
    """Serve the metrics of a server, if wanted; return what measures its stores."""
    if listener is None:
        return None
    from bucketq.metrics.broker_metrics import BrokerMetrics
    from bucketq.metrics.http_endpoint import HttpEndpoint
    from bucketq.metrics.process_registry import new_registry
    from bucketq.metrics.queue_collector import QueueCollector

    registry = new_registry()
    metrics = BrokerMetrics(registry)
    collector = QueueCollector(server, clock, metrics.queue_names)
    registry.register(collector)
    server.observe = metrics.observe
    endpoint = HttpEndpoint(
        registry, is_ready=server.is_ready, prepare=collector.read, token=listener.token
    )
    await listener.start(endpoint)
    stack.push_async_callback(endpoint.close)
    return metrics.stored


def _report(out: Output, server: Server, urls: list[str]) -> None:
    text = f"serving {_named(server, urls)} at {server.address}"
    out.result(text, {"address": server.address})


async def _add_queues(
    server: Server,
    urls: list[str],
    make: _BrokerMaker,
    clock: Clock,
    stack: AsyncExitStack,
) -> tuple[list[tuple[str, Location]], list[FolderWatch]]:
    """Let a server serve the queues at some addresses, and those under folders."""
    from bucketq.broker.folder_watch import FolderWatch

    found = _locations([each for each in urls if not is_folder(each)])
    for name, location in found:
        stack.push_async_callback(location.store.close)
        brokers = await make(location, create=True)
        if len(brokers) > 1:
            server.share(stays=False)
        for index, broker in enumerate(brokers):
            server.add(f"{name}/{index}" if index else name, broker)
    watches = list[FolderWatch]()
    for each in filter(is_folder, urls):
        server.share()
        watch = FolderWatch(QueueFolder(each), server, make, clock)
        stack.push_async_callback(watch.close)
        await watch.scan()
        watches.append(watch)
    return found, watches


async def _probe_segments(
    found: list[tuple[str, Location]], clock: Clock, timeout_s: float
) -> None:
    """Log a warning for each queue whose segments the store refuses."""
    for _, location in found:
        target = QueueObject(location.store, location.key, location.url, clock, timeout_s)
        if (warning := await refused_segments(target)) is not None:
            _log.warning("%s", warning)


def _tune_process() -> None:
    """Tune the garbage collector, malloc and the number of open files for a broker."""
    from bucketq.rpc.grpc.descriptors import raise_limit

    raise_limit()
    collect_rarely(_NEW_OBJECTS)
    keep_large_blocks()


def _locations(urls: list[str]) -> list[tuple[str, Location]]:
    """Open the stores. Reject an object with two names: its brokers would depose each other."""
    found = [(name, open_store(url)) for name, url in map(name_and_url, urls)]
    names: dict[str, str] = {}
    for name, location in found:
        other = names.setdefault(location.url, name)
        if other != name:
            raise InvalidRequestError(f"{location.url} is given twice, as {other} and as {name}")
    return found


def _check_addresses(listen: str, advertise: str, tls: ServerTls | None, *, insecure: bool) -> None:
    from bucketq.rpc.address import split_address

    for address in filter(None, (listen, advertise)):
        split_address(address)
    check_listen(listen, tls, insecure=insecure)
    host, port = split_address(advertise or listen)
    if host in _EVERYWHERE or (advertise and not port):
        raise InvalidRequestError(
            f"clients cannot connect to {advertise or listen}: add --advertise HOST:PORT, with a "
            "name or address of this host that they can reach"
        )


def _named(server: Server, urls: list[str]) -> str:
    """Return the names of the queues, or how many there are under folders."""
    folders = [each for each in urls if is_folder(each)]
    if not folders:
        return ", ".join(server.queues)
    return f"{counted(len(server.queues), 'queue')} under {', '.join(folders)}"


@dataclass(frozen=True)
class _BrokerMaker:
    """Makes the brokers of a server."""

    server: Server
    transport: Transport
    clock: Clock
    takeover: bool
    listen: str
    """The address, if queues must require tokens to be served there."""
    timeout_s: float
    on_request: OnRequest | None = None
    """Measures the requests to the stores."""

    async def __call__(self, location: Location, *, create: bool = False) -> list[Broker]:
        """Make the broker of a queue, or one for each of its partitions.

        Queues under a folder are not created, and are shared; partitions always are.
        """
        if self.on_request is not None:
            location = replace(location, store=MeasuredStore(location.store, self.on_request))
        places = await partitions_at(location, self.timeout_s)
        if self.listen:
            for place in places:
                await check_token_required(place, self.listen, self.clock, self.timeout_s)
        if places[0].partition is not None:
            # The objects of the others name the queue, so the first one must be there.
            first = await self._open_first(places[0], create=create)
            places[1:] = [replace(place, partition=_of_queue(place, first)) for place in places[1:]]
        is_shared = len(places) > 1 or not create
        return [self._broker(place, create=create, is_shared=is_shared) for place in places]

    async def _open_first(self, place: Location, *, create: bool) -> str:
        """Read or create the first partition of a queue, and return the id of the queue."""
        register = Register(place.store, place.key, place.url, self.clock, place.partition)
        await register.in_time(register.open(create=create), self.timeout_s)
        return "" if register.partition is None else register.partition.queue

    def _broker(self, location: Location, *, create: bool, is_shared: bool) -> Broker:
        from bucketq.broker.broker import Broker

        place = (location.store, location.key, location.url)
        measured = None if self.on_request is None else _measured(location, self.clock)
        register = measured or Register(*place, self.clock, location.partition)
        broker = Broker(
            register,
            self.clock,
            self.transport,
            archive=ArchiveWriter(location.store, Layout.of(location.store.url, location.key)),
            is_shared=location.scope == "shared",
            takeover=self.takeover,
            create=create or (location.partition is not None and location.partition.index > 0),
            count_led=self.server.count_led if is_shared else None,
        )
        if measured is not None:
            measured.broker = broker
        return broker


def _measured(location: Location, clock: Clock) -> MeasuredRegister:
    from bucketq.metrics.measured_register import MeasuredRegister

    place = (location.store, location.key, location.url)
    return MeasuredRegister(*place, clock, location.partition)


def _of_queue(place: Location, queue: str) -> Partition:
    if place.partition is None:
        raise AssertionError(f"{place.url} is not a partition")
    return replace(place.partition, queue=queue)


async def _until_over(server: Server, stopped: asyncio.Event, idle_exit_s: float) -> None:
    """Wait for a signal, for a broker that fails, or until the server is idle."""
    waits: list[Coroutine[Any, Any, Any]] = [server.until_over(), stopped.wait()]
    if idle_exit_s:
        waits.append(_idle(server, idle_exit_s))
    tasks = [asyncio.create_task(wait) for wait in waits]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    for task in done:
        task.result()


async def _idle(server: Server, idle_exit_s: float) -> None:
    loop = asyncio.get_running_loop()
    while server.idle_s(loop.time()) < idle_exit_s:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(_IDLE_CHECK_S)


def _signals() -> asyncio.Event:
    """Return an event that the first Ctrl-C or SIGTERM sets; a second one kills the process.

    A SIGTERM right after another is ignored: ``timeout`` sends it to a process and its group.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop(number: signal.Signals) -> None:
        stopped.set()
        loop.remove_signal_handler(signal.SIGINT)
        echo_s = _ECHO_S if number == signal.SIGTERM else 0
        loop.call_later(echo_s, loop.remove_signal_handler, signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return stopped


def _transport(tls: ServerTls | None) -> Transport:
    try:
        from bucketq.rpc.grpc.grpc_client import GrpcTransport
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"grpc", "grpc_health", "google"}:
            raise
        message = 'the packages for brokers are not installed: pip install "bucketq[broker]"'
        raise InvalidRequestError(message) from error
    return GrpcTransport(outgoing(tls), server_tls=tls)

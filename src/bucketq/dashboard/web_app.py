"""The requests that the page makes: documents of JSON, a stream of events, and its own files.

=====================================  ==========================================================
``GET /api/session``                   the queues, and what the user may do with each
``POST /api/login``, ``/api/logout``   begin and end a session
``GET /api/q/NAME/stats``              counts of the last hours
``GET /api/q/NAME/flow``               throughput, errors and percentiles of the last ``span``
``GET /api/q/NAME/events``             the same as they change, as server-sent events
``GET /api/q/NAME/jobs``               a page of jobs; ``search`` a slice of a text search
``GET /api/q/NAME/jobs/ID``            one job; ``payload`` and ``result`` below it as plain text
``GET /api/q/NAME/archive``            a page of finished jobs; one of them below it, as in ``jobs``
``GET /api/q/NAME/TABLE``              workers, schedules and so on, see ``table_views``
``POST /api/q/NAME/actions``           see ``operator_actions``
=====================================  ==========================================================

Every other address is the page, which reads from its address what to show.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import bucketq
from bucketq.clock import Clock
from bucketq.dashboard.archive_views import ArchiveViews, parse_moment
from bucketq.dashboard.flow_views import parse_span, read_ended
from bucketq.dashboard.job_views import (
    JobFilter,
    JobSearch,
    body_of,
    details_of,
    list_jobs,
    search_jobs,
)
from bucketq.dashboard.login_sessions import (
    COOKIE,
    LONGEST,
    LoginRequiredError,
    LoginSessions,
)
from bucketq.dashboard.operator_actions import OperatorAction, perform
from bucketq.dashboard.queue_watch import QueueWatch
from bucketq.dashboard.request_checks import RequestChecks
from bucketq.dashboard.table_views import TABLES
from bucketq.errors import (
    AccessDeniedError,
    BucketQError,
    InvalidRequestError,
    JobNotFoundError,
    RejectedError,
    UnavailableError,
)
from bucketq.model.records import JobRecord
from bucketq.queue.job import Job

Answer = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("bucketq.dashboard")
_STATIC = Path(__file__).with_name("static")
_STATUS: tuple[tuple[type[BucketQError], int], ...] = (
    (LoginRequiredError, 401),
    (AccessDeniedError, 403),
    (JobNotFoundError, 404),
    (InvalidRequestError, 400),
    (RejectedError, 409),
    (UnavailableError, 503),
    (BucketQError, 502),
)
"""The status of an answer by its error, the first that fits."""


class _Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    queue: str
    token: str


class WebApp:
    """Answers the requests of pages."""

    def __init__(
        self, sessions: LoginSessions, clock: Clock, *, read_only: bool, tls: bool
    ) -> None:
        self._sessions = sessions
        self._archive = ArchiveViews(clock)
        self._read_only = read_only
        self._tls = tls

    def build(self, hosts: Collection[str]) -> Starlette:
        """Return the application, for requests to these host names."""
        at = "/api/q/{queue}"
        routes = [
            Route("/healthz", _healthy, methods=["GET"]),
            Route("/api/session", self._answered(self._session), methods=["GET"]),
            Route("/api/login", self._answered(self._log_in), methods=["POST"]),
            Route("/api/logout", self._answered(self._log_out), methods=["POST"]),
            Route(f"{at}/stats", self._answered(self._stats), methods=["GET"]),
            Route(f"{at}/flow", self._answered(self._flow), methods=["GET"]),
            Route(f"{at}/events", self._answered(self._events), methods=["GET"]),
            Route(f"{at}/jobs", self._answered(self._jobs), methods=["GET"]),
            Route(f"{at}/search", self._answered(self._search), methods=["GET"]),
            Route(f"{at}/jobs/{{job}}", self._answered(self._job), methods=["GET"]),
            Route(f"{at}/jobs/{{job}}/{{part}}", self._answered(self._body), methods=["GET"]),
            Route(f"{at}/archive", self._answered(self._finished), methods=["GET"]),
            Route(f"{at}/archive/{{job}}", self._answered(self._finished_job), methods=["GET"]),
            Route(
                f"{at}/archive/{{job}}/{{part}}",
                self._answered(self._finished_body),
                methods=["GET"],
            ),
            Route(f"{at}/actions", self._answered(self._act), methods=["POST"]),
            Route(f"{at}/{{table}}", self._answered(self._table), methods=["GET"]),
            # Only files are compressed: the size of an answer must not depend on what is secret.
            Mount("/static", GZipMiddleware(StaticFiles(directory=_STATIC))),
            Route("/{path:path}", _page, methods=["GET"]),
        ]
        checks = Middleware(RequestChecks, hosts=hosts, tls=self._tls)
        return Starlette(routes=routes, middleware=[checks], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        await self._sessions.start()
        try:
            yield
        finally:
            self._archive.close()
            await self._sessions.close()

    def _answered(self, answer: Answer) -> Answer:
        """Return an answer to every request, also if the queue does not give one."""

        async def respond(request: Request) -> Response:
            try:
                return await answer(request)
            except BucketQError as error:
                status = next(code for kind, code in _STATUS if isinstance(error, kind))
                return _json({"error": str(error), "kind": type(error).__name__}, status)
            except (msgspec.DecodeError, ValueError) as error:
                return _json({"error": str(error), "kind": "InvalidRequestError"}, 400)

        return respond

    def _watch(self, request: Request) -> QueueWatch:
        cookie = request.cookies.get(COOKIE, "")
        return self._sessions.find(cookie, request.path_params["queue"])

    async def _session(self, request: Request) -> Response:
        session = self._sessions.session(request.cookies.get(COOKIE, ""))
        queues = []
        for name, url in self._sessions.queues.items():
            try:
                watch = self._sessions.find(request.cookies.get(COOKIE, ""), name)
            except LoginRequiredError:
                queues.append({"name": name, "open": False})
                continue
            token = session.token_ids[name] if session is not None else ""
            rights = ("read",) if self._read_only and watch.rights else watch.rights
            queues.append(
                {"name": name, "open": True, "url": url, "rights": rights, "token": token}
            )
        return _json(
            {
                "version": bucketq.__version__,
                "login": self._sessions.login,
                "read_only": self._read_only,
                "queues": queues,
            }
        )

    async def _log_in(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=_Login)
        known = request.cookies.get(COOKIE, "")
        fresh = await self._sessions.log_in(known, asked.queue, asked.token.strip())
        answer = _json({"ok": True})
        answer.set_cookie(
            COOKIE,
            fresh,
            max_age=round(LONGEST.total_seconds()),
            httponly=True,
            samesite="strict",
            secure=self._tls,
        )
        return answer

    async def _log_out(self, request: Request) -> Response:
        await self._sessions.log_out(request.cookies.get(COOKIE, ""))
        answer = _json({"ok": True})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=self._tls)
        return answer

    async def _stats(self, request: Request) -> Response:
        watch = self._watch(request)
        await watch.until_counted()  # Or the page would begin without what was counted before.
        document = {"stats": watch.stats, "samples": watch.samples(), "rights": watch.rights}
        return _json(document | {"trouble": watch.trouble})

    async def _flow(self, request: Request) -> Response:
        span_s = parse_span(request.query_params.get("span", ""))
        watch = self._watch(request)  # Reading the jobs proves that the token is valid.
        ended, is_all = await watch.call(read_ended)
        note = "" if is_all else "not all jobs that have ended and are still in the queue"
        counts = watch.counts_ended()
        return _json(await self._archive.flow(watch.url, span_s, ended, counts, note))

    async def _events(self, request: Request) -> Response:
        watch, cookie = self._watch(request), request.cookies.get(COOKIE, "")

        async def stream() -> AsyncIterator[bytes]:
            # Longer than the time between two events; until then the page shows what it has.
            yield b"retry: 2000\n\n"
            async for name, document in watch.events():
                yield b"event: %s\ndata: %s\n\n" % (name.encode(), document)
                if self._sessions.login and not self._sessions.is_open(cookie):
                    return

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def _jobs(self, request: Request) -> Response:
        wanted, after = _filter(request), _after(request)
        return _json(await self._watch(request).call(lambda queue: list_jobs(queue, wanted, after)))

    async def _search(self, request: Request) -> Response:
        wanted, after = _filter(request), _after(request)
        search, watch = _search_in(request), self._watch(request)
        return _json(await watch.call(lambda queue: search_jobs(queue, wanted, after, search)))

    async def _job(self, request: Request) -> Response:
        name = request.path_params["job"]
        job = await self._watch(request).call(lambda queue: queue.get(name))
        return _json(details_of(job.record))

    async def _body(self, request: Request) -> Response:
        name, watch = request.path_params["job"], self._watch(request)
        job = await watch.call(lambda queue: queue.get(name))
        return await self._part_of(job, request)

    async def _finished(self, request: Request) -> Response:
        watch = await self._checked(request)
        return _json(await self._archive.page(watch.url, request.query_params.getlist))

    async def _finished_job(self, request: Request) -> Response:
        return _json(details_of(await self._find_finished(request)))

    async def _finished_body(self, request: Request) -> Response:
        return await self._part_of(Job(await self._find_finished(request), Any), request)

    async def _find_finished(self, request: Request) -> JobRecord:
        watch = await self._checked(request)
        at = request.query_params.get("at", "")
        return await self._archive.find(watch.url, request.path_params["job"], at)

    async def _checked(self, request: Request) -> QueueWatch:
        """Return the queue; if users log in, the broker is asked whether the token is valid."""
        watch = self._watch(request)
        if self._sessions.login:
            await watch.call(lambda queue: queue.settings())
        return watch

    async def _part_of(self, job: Job[Any], request: Request) -> Response:
        part, watch = request.path_params["part"], self._watch(request)
        if part not in {"payload", "result"}:
            raise InvalidRequestError(f"a job has no {part!r}")
        chunks = await watch.call(lambda queue: _begun(body_of(queue, job, part)))
        # Plain text and a download: whatever is in it, no browser shows it as a document. A name
        # here would take precedence over that of the link, which has the id of the job.
        headers = {"content-disposition": "attachment"}
        return StreamingResponse(chunks, media_type="text/plain", headers=headers)

    async def _table(self, request: Request) -> Response:
        read = TABLES.get(request.path_params["table"])
        if read is None:
            raise JobNotFoundError("there is nothing at this address")
        return _json({"rows": await self._watch(request).call(read)})

    async def _act(self, request: Request) -> Response:
        watch = self._watch(request)
        if self._read_only:
            raise AccessDeniedError("this dashboard was started with --read-only")
        action = msgspec.json.decode(await request.body(), type=OperatorAction)
        changed = await watch.call(lambda queue: perform(queue, action))
        _log.info("%s on %s: %s", action.action, watch.name, changed.text)
        return _json(changed)


async def _begun(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Read the first chunk, so that an error becomes the status of the answer."""
    first = await anext(chunks, b"")

    async def all_chunks() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    return all_chunks()


def _filter(request: Request) -> JobFilter:
    given = request.query_params
    several: dict[str, Any] = {
        name: tuple(filter(None, given.getlist(name)))
        for name in ("status", "kind", "group", "tag")
    }
    return JobFilter(**several, batch=given.get("batch", ""))


def _search_in(request: Request) -> JobSearch:
    given = request.query_params
    since, until = (
        parse_moment(text) if (text := given.get(name, "")) else None for name in ("since", "until")
    )
    search = JobSearch(text=given.get("text", "").strip(), since=since, until=until)
    if search == JobSearch():
        raise InvalidRequestError("there is no text and no time to search for")
    return search


def _after(request: Request) -> int:
    return int(request.query_params.get("after") or 0)


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


async def _page(request: Request) -> Response:
    if request.url.path.startswith("/api/"):
        return PlainTextResponse("not found\n", 404)
    return FileResponse(_STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _healthy(request: Request) -> Response:
    del request
    return PlainTextResponse("ok\n")

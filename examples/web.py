"""A web application that leaves the work to a worker.

POST /reports pushes a job and answers 202 with its id and the address of its status; GET
/reports/{id} returns the status. A client that repeats its request with the same
``Idempotency-Key`` gets the same job, so it may repeat it until there is an answer.

    pip install starlette uvicorn
    export BUCKETQ_URL=file:///tmp/jobs/queue.json
    uvicorn --app-dir examples web:app

    curl -d '{"month": "2026-10"}' -H 'Idempotency-Key: 7' http://127.0.0.1:8000/reports
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import bucketq

KIND = "report"


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    """Open the queue once, on the event loop that serves the requests."""
    # The address is read here and not above, so that tests can set it: see docs/guides/testing.md.
    async with bucketq.connect(os.environ["BUCKETQ_URL"], timeout_s=10) as queue:
        yield {"queue": queue}


async def order(request: Request) -> Response:
    """Push a job. The answer is sent after the job is stored, and not before."""
    queue: bucketq.Queue[Any] = request.state.queue
    try:
        wish = await request.json()
        month = str(wish["month"])
    except (ValueError, TypeError, KeyError):
        return problem(400, 'send JSON like {"month": "2026-10"}')
    # Only what the client sent: the same key with another payload is rejected.
    key = request.headers.get("idempotency-key")
    try:
        job = await queue.push(KIND, {"month": month}, key=f"{KIND}/{key}" if key else None)
    except bucketq.KeyConflictError:
        return problem(422, "this Idempotency-Key belongs to another request")
    except bucketq.InvalidRequestError as error:
        return problem(400, str(error))
    except (bucketq.UnavailableError, bucketq.OverloadedError, bucketq.QueueFullError):
        # It is unknown whether the job was stored; with a key the client can retry.
        return problem(503, "try again with the same Idempotency-Key", {"Retry-After": "5"})
    place = f"/reports/{job}"
    return JSONResponse({"job": job, "status": place}, 202, {"Location": place})


async def look(request: Request) -> Response:
    """Return the status of a job, until it leaves the queue for the archive."""
    queue: bucketq.Queue[Any] = request.state.queue
    try:
        job = await queue.get(request.path_params["job"])
    except bucketq.JobNotFoundError:
        job = None
    # An id is not a permission: this page shows jobs of its own kind only.
    if job is None or job.kind != KIND:
        return problem(404, "there is no such report, or it was finished a while ago")
    return JSONResponse({"job": job.id, "status": job.status, "result": job.result})


def problem(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as JSON."""
    return JSONResponse({"error": text}, status, headers)


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/reports", order, methods=["POST"]),
        Route("/reports/{job}", look),
    ],
)

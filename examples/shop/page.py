"""The web page of the shop, and what it asks for.

    POST /orders                 place an order: {"customer": "ada", "items": ["tea", "cup"]}
    GET  /orders                 how far all orders have come
    GET  /orders/{id}            one of them
    GET  /orders/{id}/receipt    wait for the charge, and return what it cost

A client that repeats its POST with the same ``Idempotency-Key`` has ordered once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import bucketq
from examples.shop.tasks import URL, Order

_HTML = Path(__file__).with_name("page.html")
_RECEIPT_S = 20.0
"""How long a customer waits for a receipt."""


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    """Open the queue once, on the event loop that serves the requests."""
    async with bucketq.connect(URL, timeout_s=10) as queue:
        yield {"queue": queue}


async def show(_: Request) -> Response:
    """Return the page."""
    return HTMLResponse(_HTML.read_text("utf-8"))


async def place(request: Request) -> Response:
    """Place an order: push its first job. It is answered once that is stored."""
    queue: bucketq.Queue[Any] = request.state.queue
    try:
        wish = await request.json()
        customer, items = str(wish["customer"]), [str(item) for item in wish["items"]]
    except (ValueError, TypeError, KeyError):
        return problem(400, 'send JSON like {"customer": "ada", "items": ["tea", "cup"]}')
    key = request.headers.get("idempotency-key")
    # The id follows from the key, so that the same request is the same order.
    order_id = sha256(key.encode()).hexdigest()[:32] if key else uuid4().hex
    try:
        job = await queue.push(
            "charge", Order(order_id, customer, items), id=order_id, group=customer
        )
    except bucketq.InvalidRequestError as error:
        return problem(400, str(error))
    except bucketq.UnavailableError:
        return problem(503, "try again with the same Idempotency-Key")
    return JSONResponse({"order": job, "again": job.duplicate}, 202)


async def list_orders(request: Request) -> Response:
    """Return all orders that the queue knows of, the latest first."""
    queue: bucketq.Queue[Any] = request.state.queue
    charges = await queue.jobs(kinds="charge", limit=100)
    known = dict.fromkeys([job.id for job in charges.jobs])
    known |= dict.fromkeys([batch.id for batch in await queue.batches()])
    orders = [await look(queue, order) for order in reversed(known)]
    return JSONResponse(orders)


async def show_order(request: Request) -> Response:
    """Return one order."""
    found = await look(request.state.queue, request.path_params["order"])
    return JSONResponse(found, 404 if found["stage"] == "unknown" else 200)


async def receipt(request: Request) -> Response:
    """Wait for the charge of an order; no request polls for it."""
    queue: bucketq.Queue[Any] = request.state.queue
    try:
        result = await queue.wait(request.path_params["order"], timeout_s=_RECEIPT_S)
    except bucketq.JobFailedError as error:
        return problem(402, str(error))
    except (bucketq.JobNotFoundError, TimeoutError):
        return problem(404, "there is no receipt yet")
    return JSONResponse(result)


async def look(queue: bucketq.Queue[Any], order: str) -> dict[str, Any]:
    """Find out how far an order has come: from its batch, or else from its charge."""
    shown: dict[str, Any] = {"order": order, "stage": "unknown"}
    try:
        batch = await queue.get_batch(order)
    except bucketq.BatchNotFoundError:
        try:
            job = await queue.get(order)
        except bucketq.JobNotFoundError:
            return shown
        failed = job.status == "dead"
        return shown | {"stage": "declined" if failed else "charging"}
    shown |= {"stage": "packing", "items": batch.jobs, "packed": batch.completed}
    if batch.callback is not None:
        try:
            result = await queue.wait(batch.callback, timeout_s=0)
        except TimeoutError:
            return shown
        return shown | {"stage": "shipped", **msgspec.to_builtins(result)}
    return shown


def problem(status: int, text: str) -> Response:
    """Return an error as JSON."""
    return JSONResponse({"error": text}, status)


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/", show),
        Route("/orders", place, methods=["POST"]),
        Route("/orders", list_orders),
        Route("/orders/{order}", show_order),
        Route("/orders/{order}/receipt", receipt),
    ],
)

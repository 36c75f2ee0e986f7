"""What the workers of the shop do.

Each step uses one feature of the queue: a charge is limited and pushes the next step together with
its completion, the items of an order are a batch, packing reports its progress, the last item
pushes the shipment, and a schedule counts the stock.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from msgspec import Struct

import bucketq
from bucketq import Context, GiveUp, JobSpec, Queue, Snooze, Worker

URL = os.environ.get("BUCKETQ_URL", "file:///tmp/bucketq-shop/queue.json")
worker = Worker(URL, concurrency=4)

STEPS = 4
STEP_S = float(os.environ.get("SHOP_STEP_S", "0.4"))
"""How long a step of packing takes; tests have less patience than people."""
SOLD_OUT = "unicorn"


class Order(Struct):
    """What a customer has ordered."""

    id: str
    customer: str
    items: list[str]


class Item(Struct):
    """One item of an order."""

    order: str
    name: str


@worker.on_start
async def set_limits() -> None:
    """Charge two cards at once, and ten a second: the bank allows no more."""
    async with bucketq.connect(URL) as queue:
        await queue.limit(kind="charge", running=2, rate=10, period_s=1)


@worker.handler("charge", max_attempts=5)
async def charge(order: Order, context: Context) -> dict[str, Any]:
    """Charge a card. The order is packed if and only if that has succeeded."""
    if order.customer == "nobody":
        raise GiveUp("the card was declined")
    if context.job.snoozes == 0 and order.customer == "slow bank":
        raise Snooze(STEP_S)  # It asks us to come back later; that is no failure.
    await context.push(prepare, order, group=order.customer)
    return {"charged": 7 * len(order.items)}


@worker.handler("prepare")
async def prepare(order: Order, context: Context) -> None:
    """Push a job for each item, and the shipment for when all are packed.

    The batch has the id of the order and each job a key, so a second attempt adds nothing twice.
    """
    done = JobSpec(kind="ship", payload=order, group=order.customer)
    async with context.queue.batch(on_done=done, batch_id=order.id) as batch:
        for number, name in enumerate(order.items):
            key = f"{order.id}/{number}"
            item = Item(order.id, name)
            await batch.push("pack", item, group=order.customer, key=key)


@worker.handler("pack", max_attempts=1)
async def pack(item: Item, context: Context) -> None:
    """Pack an item, and say how far that has come."""
    if item.name == SOLD_OUT:
        raise GiveUp(f"{item.name} is sold out")
    for step in range(STEPS):
        await context.progress(step, STEPS, item.name)
        await asyncio.sleep(STEP_S)


@worker.handler("ship")
async def ship(order: Order, context: Context) -> dict[str, Any]:
    """Ship what was packed."""
    batch = context.job.done_batch
    if batch is None:
        raise GiveUp("a shipment is the end of a batch")
    return {"customer": order.customer, "packed": batch.completed, "missing": batch.failed}


@worker.schedule("count-stock", every_s=5)
async def count_stock(context: Context) -> dict[str, int]:
    """Count what is on its way, every five seconds."""
    queue: Queue[Any] = context.queue
    stats = await queue.stats()
    return {"to pack": stats.counts.get("pack", {}).get("queued", 0)}

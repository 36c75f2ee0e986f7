"""The shop, started by its one command: orders are charged, packed and shipped."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from tests.environ import ROOT
from tests.examples.program import PATIENCE_S, Program
from tests.servers.process import free_ports, http

pytestmark = pytest.mark.timeout(240)


class Shop:
    """A running shop, spoken to over HTTP."""

    def __init__(self, base: str, program: Program, url: str) -> None:
        self._base = base
        self.program = program
        self.url = url

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        raw = None if body is None else json.dumps(body).encode()
        status, answer = http(method, self._base + path, raw, headers)
        return status, json.loads(answer)

    def order(self, customer: str, *items: str, **headers: str) -> str:
        status, answer = self.ask(
            "POST", "/orders", {"customer": customer, "items": items}, **headers
        )
        assert status == 202, answer
        return str(answer["order"])

    def until(self, order: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so(found := self.ask("GET", f"/orders/{order}")[1]):
            assert time.monotonic() < deadline, (found, self.program.output())
            time.sleep(0.1)
        return dict(found)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    [port] = free_ports(1)
    url = (tmp_path / "queue.json").as_uri()
    environ = {"BUCKETQ_URL": url, "SHOP_STEP_S": "0.05", "PYTHONPATH": str(ROOT)}
    command = ["-m", "examples.shop", "--port", str(port)]
    with Program(command, tmp_path / "shop.txt", **environ) as program:
        running = Shop(f"http://127.0.0.1:{port}", program, url)
        deadline = time.monotonic() + PATIENCE_S
        while http("GET", f"http://127.0.0.1:{port}/")[0] != 200:
            assert time.monotonic() < deadline, program.output()
            time.sleep(0.1)
        yield running


def test_an_order_goes_through_all_steps_and_the_page_shows_them(shop: Shop) -> None:
    order = shop.order("ada", "tea", "cup", "unicorn")
    assert shop.ask("GET", f"/orders/{order}/receipt") == (200, {"charged": 21})
    slow = shop.order("slow bank", "tea")
    declined = shop.order("nobody", "tea")
    assert shop.ask("GET", f"/orders/{declined}/receipt")[0] == 402
    shipped = shop.until(order, lambda found: found["stage"] == "shipped")
    assert (shipped["packed"], shipped["missing"], shipped["customer"]) == (2, 1, "ada")
    assert shop.until(slow, lambda found: found["stage"] == "shipped")["packed"] == 1
    stages = {each["order"]: each["stage"] for each in shop.ask("GET", "/orders")[1]}
    assert stages == {order: "shipped", slow: "shipped", declined: "declined"}

    again = [shop.order("bob", "tea", **{"Idempotency-Key": "7"}) for _ in range(2)]
    assert again[0] == again[1]
    assert shop.ask("POST", "/orders", ["nothing"])[0] == 400
    assert shop.ask("GET", "/orders/of-nobody")[0] == 404

    with bucketq.connect_sync(shop.url, launch="never") as queue:
        [limit] = queue.limits()
        assert (limit.target, limit.running) == ("kind=charge", 2)
        assert [each.name for each in queue.schedules()] == ["count-stock"]
    shop.program.send(signal.SIGINT)
    assert shop.program.wait() == 0
    assert "Traceback" not in shop.program.output()

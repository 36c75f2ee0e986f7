"""Renders the pictures of the web page that the documentation uses: a minute of a small shop."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.headless_browser import HeadlessBrowser, is_installed

import bucketq
from bucketq import JobSpec
from tests.dashboard.page_server import Page, served_page
from tests.servers.process import free_ports

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
_BUSY_S = 70.0
"""How long the shop is open: the charts show a minute of it."""
_THUMBNAILS = 40
"""They take long, so only the first orders have some."""
_PHONE = 390
_TENANTS = ("acme", "globex", "initech")
_READY = "return !!document.querySelector('main h1') && !document.querySelector('[aria-busy]')"


async def keep_shop(url: str) -> None:
    """Push orders and work on them; some fail, and some run for long."""
    worker = bucketq.Worker(url, concurrency=6, worker="shop-1")

    @worker.handler("email")
    async def email(order: dict[str, Any]) -> None:
        await asyncio.sleep(0.2 + order["order"] % 7 / 10)

    @worker.handler("invoice")
    async def invoice(order: dict[str, Any]) -> str:
        await asyncio.sleep(0.4)
        if order["order"] % 3 == 0:
            raise LookupError(f"order {order['order']} has no address")
        return f"invoice-{order['order']}.pdf"

    @worker.handler("thumbnail")
    async def thumbnail(order: dict[str, Any], context: bucketq.Context) -> None:
        for frame in range(60):
            await context.progress(frame, 60, "frames")
            await asyncio.sleep(0.5 + order["order"] % 3)

    async with bucketq.connect(url) as queue:
        await queue.configure(heartbeat_s=1.0)
        await queue.schedule("nightly-report", "report", {"day": "yesterday"}, every_s=86400)
        await queue.limit(kind="thumbnail", running=3)
        working = asyncio.create_task(worker.run())
        try:
            for order in range(int(_BUSY_S * 4)):
                kind = ("email", "invoice", "email", "email", "thumbnail")[order % 5]
                if kind != "thumbnail" or order < _THUMBNAILS:
                    spec = JobSpec(
                        kind=kind,
                        payload={"order": order, "customer": f"c-{order * 7919 % 1000:03d}"},
                        group=_TENANTS[order % 3],
                        tags={"tier": "gold" if order % 4 else "free"},
                        max_attempts=1 if order % 2 else 3,
                    )
                    await queue.push_many([spec] * (12 if order % 60 == 0 else 1))
                await asyncio.sleep(0.25)
            await asyncio.sleep(3600)
        finally:
            working.cancel()


def render(page: Page, browser: HeadlessBrowser) -> None:
    """Write the pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, width in (("overview", 1280), ("phone", _PHONE)):
        browser.resize(width, 860, is_phone=width == _PHONE)
        browser.open(f"{page.url}/q/shop")
        browser.until(lambda: browser.run(_READY), name)
        browser.until_text("live", "#live")
        browser.until_text("Rates", ".flow-note")
        browser.screenshot(IMAGES / f"dashboard-{name}.png")


def main() -> int:
    """Open the shop, wait, and render."""
    if not is_installed():
        print("Chromium and chromedriver are needed: sh tools/browser.sh", file=sys.stderr)  # noqa: T201
        return 1
    folder = Path(tempfile.mkdtemp(prefix="bq-"))
    try:
        url = (folder / "queue.json").as_uri()
        asyncio.run(_run(url, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


async def _run(url: str, folder: Path) -> None:
    async with bucketq.connect(url, launch="never"):
        pass  # The page does not create it.
    shop = asyncio.create_task(keep_shop(url))
    try:
        await asyncio.to_thread(_render_after_a_minute, url, folder)
    finally:
        shop.cancel()
        await asyncio.gather(shop, return_exceptions=True)


def _render_after_a_minute(url: str, folder: Path) -> None:
    with served_page({"shop": url}) as page:
        time.sleep(_BUSY_S)
        browser = HeadlessBrowser(folder, free_ports(1)[0])
        try:
            render(page, browser)
        finally:
            browser.close()


if __name__ == "__main__":
    sys.exit(main())

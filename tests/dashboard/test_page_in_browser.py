"""The web page in a real browser: every view, actions, hostile texts, and a broker that is killed.

One Chromium and one page are shared by all tests here; one test starts a second browser.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from tools.headless_browser import HeadlessBrowser, is_installed

import bucketq
from bucketq import JobSpec
from bucketq.rpc.credentials import ServerTls
from tests.dashboard.page_server import Page, serve, served_page
from tests.environ import IS_ALL_REQUIRED, ROOT
from tests.security.certificates import Authority
from tests.servers.process import free_ports

VIEWS = [
    "",
    "jobs",
    "jobs/hostile",
    "archive",
    "workers",
    "schedules",
    "limits",
    "batches",
    "consumers",
]
VIEWS += ["tokens", "settings", "audit"]
EVIL = '"><img src=x onerror="window.injected=1"><script>window.injected=1</script>'
READY = "return !!document.querySelector('main h1') && !document.querySelector('[aria-busy]')"
WIDTH = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNNAMED = """
return [...document.querySelectorAll("button, a, input, select, textarea")].filter((e) =>
  e.getClientRects().length && !e.innerText?.trim() && !e.getAttribute("aria-label")
  && !e.labels?.length && !e.querySelector("img[alt]")).map((e) => e.outerHTML.slice(0, 120));
"""
# The contrast of WCAG, for every visible text that is written on a plain ground.
FAINT = """
const parts = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
const light = (c) => {
  const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (e) => {
  for (; e; e = e.parentElement) {
    const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const faint = [];
for (const e of document.querySelectorAll("body *")) {
  const hasText = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!hasText || !e.getClientRects().length || e.closest(".unseen, .skip, svg, option")) continue;
  const [a, b] = [light(parts(getComputedStyle(e).color)), light(ground(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${e.className} ${e.textContent.slice(0, 40)}`);
}
return faint;
"""

AXE = ROOT / "build" / "tools" / "node_modules" / "axe-core" / "axe.min.js"
AXE_VIEWS = ["", "jobs/hostile"]
"""A table with charts, and a page of one thing; each takes seconds, and full runs have all."""
VIOLATIONS = """
return axe.run(document, {resultTypes: ["violations"]}).then((found) =>
  found.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 120)}`));
"""

pytestmark = pytest.mark.skipif(
    not is_installed() and not IS_ALL_REQUIRED,
    reason="Chromium and chromedriver are not installed: sh tools/browser.sh",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = (tmp_path_factory.mktemp("queue") / "queue.json").as_uri()
    with bucketq.connect_sync(address, mode="direct") as queue:
        fill(queue)
    return address


@pytest.fixture(scope="module")
def page(url: str) -> Iterator[Page]:
    with served_page({"jobs": url}) as served:
        yield served


@contextmanager
def chromium() -> Iterator[HeadlessBrowser]:
    # Chromium's sockets need a short path.
    folder = Path(tempfile.mkdtemp(prefix="bq-"))
    opened = HeadlessBrowser(folder, free_ports(1)[0])
    try:
        yield opened
    finally:
        opened.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def window() -> Iterator[HeadlessBrowser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def browser(window: HeadlessBrowser) -> Iterator[HeadlessBrowser]:
    """The browser with a desktop's width; a test fails if the page logs an error."""
    window.resize(1280, 900)
    window.prefer("light")
    window.errors()
    yield window
    assert window.errors() == []
    assert window.run("return window.injected") is None


def fill(queue: Any) -> None:
    queue.push_many([JobSpec(kind="email", payload={"n": n}) for n in range(120)])
    hostile = {"tags": {"tag": EVIL[:60]}, "group": EVIL[:60], "max_attempts": 1}
    queue.push("evil", {"text": EVIL, EVIL: [1, {"deep": None}]}, id="hostile", **hostile)
    (job,) = queue.claim("evil", worker=EVIL[:60])
    queue.fail(job, f"Traceback:\n  line\nValueError: {EVIL}")
    about = {"run_id": "r", "host": EVIL[:60], "pid": 1, "version": "1", "up_s": 1}
    queue.announce(EVIL[:60], **about, kinds=("evil",))
    queue.schedule("hourly", "tick", EVIL, every_s=3600)
    queue.limit(kind="email", running=2)
    queue.open_batch(JobSpec(kind="end", payload=None), batch_id="batch-1")
    queue.open_consumer("stream")


def show(browser: HeadlessBrowser, page: Page, path: str) -> None:
    browser.open(f"{page.url}/q/jobs{path}")
    browser.until(lambda: browser.run(READY), f"view of {path}")


def test_every_view_fits_can_be_read_and_named(
    browser: HeadlessBrowser, page: Page, request: pytest.FixtureRequest
) -> None:
    browser.open(page.url)
    browser.until_text("Overview", "h1")
    browser.until_text("live", "#live")
    is_full = request.config.getoption("full")
    for turn, (scheme, width) in enumerate((("light", 1280), ("dark", 390))):
        browser.prefer(scheme)
        browser.resize(width, 844, is_phone=width < 800)
        for view in VIEWS if is_full else VIEWS[turn::2]:  # In an ordinary run, each once.
            show(browser, page, f"/{view}" if view else "")
            where = f"{view} {scheme}"
            assert browser.run(WIDTH) == 0, f"{where} is wider than the window"
            assert browser.run(UNNAMED) == [], where
            assert browser.run(FAINT) == [], where
            assert "did not work" not in browser.text("main"), where


def test_axe_core_finds_nothing_that_keeps_people_from_using_it(
    browser: HeadlessBrowser, page: Page, request: pytest.FixtureRequest
) -> None:
    if not AXE.exists():
        reason = "axe-core is not installed; `make browser` installs it if there is Node.js"
        pytest.fail(reason) if IS_ALL_REQUIRED else pytest.skip(reason)
    check = f"{AXE.read_text('utf-8')}; {VIOLATIONS}"
    is_full = request.config.getoption("full")
    for scheme, width in (("light", 1280), ("dark", 390)) if is_full else (("light", 1280),):
        browser.prefer(scheme)
        browser.resize(width, 844, is_phone=width < 800)
        for view in VIEWS if is_full else AXE_VIEWS:
            show(browser, page, f"/{view}" if view else "")
            assert browser.run(check) == [], f"{view} {scheme}"


def test_what_one_browser_does_is_seen_in_another(
    browser: HeadlessBrowser, page: Page, url: str
) -> None:
    with chromium() as other, bucketq.connect_sync(url, mode="direct") as queue:
        job_id = queue.push("shared", 1)
        show(other, page, f"/jobs/{job_id}")
        show(browser, page, f"/jobs/{job_id}")
        for each, priority in ((other, "3"), (browser, "4")):
            each.click("Change priority", "main")
            each.fill("#field-priority", priority)
        other.click("Change priority", "dialog")
        other.until_text("has priority 3", "#notices")
        browser.click("Change priority", "dialog")
        browser.until_text("has priority 4", "#notices")
        other.until(lambda: "4" in priority_shown(other), "the priority that the other has set")
        browser.click("Cancel", "main")
        browser.click("Cancel", "dialog")
        other.until_text("cancelled", "main .title")
        assert queue.get(job_id).outcome == "cancelled"
        assert other.errors() == []


def priority_shown(browser: HeadlessBrowser) -> str:
    names = "[...document.querySelectorAll('dl.facts dt')]"
    found = f"{names}.find((e) => e.textContent === 'Priority')"
    return str(browser.run(f"return {found}.nextElementSibling.textContent"))


def test_the_page_is_live_over_tls(browser: HeadlessBrowser, tmp_path: Path, url: str) -> None:
    pair = Authority(tmp_path).broker
    with served_page({"jobs": url}, tls=ServerTls(cert=pair.cert, key=pair.key)) as page:
        assert page.url.startswith("https://")
        show(browser, page, "")
        browser.until_text("live", "#live")
        assert browser.run("return location.protocol") == "https:"
        with pytest.raises((HTTPException, OSError)):
            page.get("/")  # Without TLS there is no answer.
        browser.open("about:blank")  # Or it would look for the page that has ended.


def test_hostile_texts_stay_texts(browser: HeadlessBrowser, page: Page) -> None:
    show(browser, page, "/jobs?kind=evil")
    browser.until_text(EVIL[:40], "main")
    browser.run("document.querySelector('td.id a').click()")
    browser.until_text("Timeline", "main")
    shown = browser.text("main")
    assert shown.count("window.injected=1") >= 5
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    show(browser, page, "/workers")
    browser.until_text(EVIL[:40], "main")
    show(browser, page, "/jobs?text=ONERROR")
    browser.until_text("1 found", "main")


def test_jobs_are_found_paged_and_walked_by_keys(browser: HeadlessBrowser, page: Page) -> None:
    show(browser, page, "/jobs?kind=email")
    assert browser.run("return document.querySelectorAll('tr.row').length") == 100
    browser.press("jj")
    second = browser.run("return document.activeElement.textContent")
    assert second == browser.run("return document.querySelectorAll('td.id a')[1].textContent")
    browser.press("n")
    browser.until(
        lambda: browser.run("return document.querySelectorAll('tr.row').length") == 20, "last page"
    )
    assert "after=" in browser.run("return location.search")
    browser.press("?")
    browser.until_text("Keyboard shortcuts", "dialog")
    browser.click("Close", "dialog")
    browser.press("/")
    browser.press("hostile\ue007")
    browser.until_text("Timeline", "main")
    assert browser.run("return location.pathname") == "/q/jobs/jobs/hostile"
    browser.press("gw")
    browser.until_text("Workers", "h1")


def test_actions_ask_first_and_show_what_came_of_them(
    browser: HeadlessBrowser, page: Page, url: str
) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        show(browser, page, "/jobs/hostile")
        browser.click("Retry", "main")
        browser.until_text("Retry this job?", "dialog")
        browser.click("Keep as it is", "dialog")
        assert queue.get("hostile").status == "dead"
        browser.click("Retry", "main")
        browser.click("Retry", "dialog")
        browser.until_text("is queued again", "#notices")
        browser.until_text("queued", "main .title")
        browser.click("Change priority", "main")
        browser.fill("#field-priority", "4")
        browser.click("Change priority", "dialog")
        browser.until_text("has priority 4", "#notices")
        assert queue.get("hostile").priority == 4
        browser.click("Push again", "main")
        browser.fill("#field-payload", '{"edited": true}')
        browser.fill("#field-priority", "-3")
        browser.click("Push again", "dialog")
        browser.until_text('"edited"', "main .tree")
        again = queue.get(browser.text("h1"))
        assert (again.payload, again.priority) == ({"edited": True}, -3)
        show(browser, page, "/jobs?kind=email")
        browser.click("Change priority", "main")
        browser.fill("#field-priority", "6")
        browser.click("Change priority", "dialog")
        browser.until_text("Change priority: 120 jobs", "#notices")
        browser.click("Cancel jobs", "main")
        browser.click("Cancel jobs", "dialog")
        browser.until_text("Cancel jobs: 120 jobs", "#notices")
        assert "email" not in queue.stats().unclaimed()
        show(browser, page, "/settings")
        browser.click("Edit max_attempts", "main")
        browser.fill("#field-value", "-1")
        browser.click("Save", "dialog")
        browser.until_text("max_attempts", "dialog .form-error")
        browser.fill("#field-value", "9")
        browser.click("Save", "dialog")
        browser.until_text("changed max_attempts", "#notices")
        assert queue.settings().max_attempts == 9
        show(browser, page, "/audit")
        browser.until_text("configure", "main")
        browser.until_text("redrive", "main")
    browser.errors()  # The refused setting was logged as one.


def test_workers_are_drained_and_tokens_revoked_by_a_click(
    browser: HeadlessBrowser, page: Page, url: str
) -> None:
    about: dict[str, Any] = {"host": "h", "pid": 1, "version": "1", "up_s": 1}
    with bucketq.connect_sync(url, mode="direct") as queue:
        for run_id in ("run-1", "run-2"):
            queue.announce("mailer", run_id=run_id, **about)
        show(browser, page, "/workers")
        browser.click("Drain mailer", "main")
        browser.click("Drain", "dialog")
        browser.until_text("worker mailer was asked to finish", "#notices")
        browser.until_text("mailer draining", "main")
        browser.until_text("mailer idle", "main")
        assert [each.draining for each in queue.workers() if each.name == "mailer"] == [True, False]
        token_id = queue.create_token("ada", rights=("read",)).split("_")[1]
        show(browser, page, "/tokens")
        browser.click(f"Revoke {token_id}", "main")
        browser.click("Keep as it is", "dialog")
        assert [each.id for each in queue.tokens()] == [token_id]
        browser.click(f"Revoke {token_id}", "main")
        browser.click("Revoke", "dialog")
        browser.until_text(f"token {token_id} was revoked", "#notices")
        browser.until_text("brokers refuse every client", "main")
        assert queue.tokens() == []
        queue.configure(require_token=False)
        show(browser, page, "/tokens")
        browser.until_text("brokers accept every client", "main")
    show(browser, page, "/audit")
    for action in ("drain worker", "grant token", "revoke token", "set limit"):
        browser.until_text(action, "main")


def test_large_payloads_are_downloaded_under_the_name_of_their_job(
    browser: HeadlessBrowser, page: Page, url: str, tmp_path: Path
) -> None:
    contents = {"large-1": {"rows": ["x" * 1000] * 5200}, "large-2": b"\x00\xff" * 2_621_440}
    browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    with bucketq.connect_sync(url, mode="direct") as queue:
        for job_id, content in contents.items():
            queue.push("large", content, id=job_id)
    for job_id, content in contents.items():
        show(browser, page, f"/jobs/{job_id}")
        browser.click("Download", "main")
        saved = tmp_path / f"{job_id}.payload"
        browser.until(saved.exists, f"file {saved.name} in {[*tmp_path.iterdir()]}")
        found = saved.read_bytes()
        assert (found if isinstance(content, bytes) else json.loads(found)) == content


def test_the_archive_is_searched_by_times_of_the_zone_of_the_user(
    browser: HeadlessBrowser, page: Page, url: str
) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        job_id = queue.push("ended", 1)
        for job in queue.claim("ended"):
            queue.complete(job)
        queue.flush_archive()
    browser.devtools("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    try:
        show(browser, page, "/archive?kind=ended")
        browser.until_text("1 job, read back to", "main")
        # What is typed is 5:30 ahead of UTC.
        type_into(browser, "until", "01152020", "1000AM")
        browser.click("Search", "main")
        browser.until_text("the first time is not before the last one", "main .found")
        assert "until=2020-01-15T04%3A30%3A00.000Z" in browser.run("return location.search")
        shown = "return document.querySelector(`input[name=${arguments[0]}]`).value"
        assert browser.run(shown, "until") == "2020-01-15T10:00", "it can be corrected"
        type_into(browser, "since", "01142020", "1000AM")
        browser.click("Search", "main")
        browser.until_text("No jobs ended in this time", "main")
        assert browser.run(shown, "since") == "2020-01-14T10:00"
        browser.click("Clear", "main")
        browser.until_text(job_id, "main")
    finally:
        browser.devtools("Emulation.setTimezoneOverride", timezoneId="")
    browser.errors()  # The refused time was logged as one.


def type_into(browser: HeadlessBrowser, name: str, day: str, time: str) -> None:
    """Type a time into a field as a person does, in the order of American English."""
    focus = "document.querySelector(`input[name=${arguments[0]}]`).focus()"
    browser.run(focus, name)
    browser.press(f"{day}\ue004{time}")


def test_a_killed_broker_is_reported_and_its_return_too(
    browser: HeadlessBrowser, tmp_path: Path
) -> None:
    port = free_ports(1)[0]
    folder = Path(tempfile.mkdtemp(prefix="bq-"))
    url = (folder / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("greet", 1)
    broker = serve(url, port, tmp_path)
    try:
        with served_page({"jobs": f"bucketq://127.0.0.1:{port}/jobs"}) as page:
            show(browser, page, "")
            browser.until_text("greet", "main")
            browser.until_text("0 requests for the object failed", "main")
            os.kill(broker.pid, signal.SIGKILL)
            broker.wait()
            browser.until_text("The queue does not answer", "#trouble", timeout_s=90)
            assert browser.text("#live") == "queue does not answer"
            assert "greet" in browser.text("main")
            broker = serve(url, port, tmp_path)
            with bucketq.connect_sync(url) as queue:
                queue.push("later", 1)
            browser.until_text("later", "main", timeout_s=90)
            # The broker again, or one that the client has started first.
            browser.until(lambda: "0 in the time shown" not in browser.text("main"), "a takeover")
            with bucketq.connect_sync(f"bucketq://127.0.0.1:{port}/jobs") as queue:
                queue.push("measured", 1)
            browser.until_text("1 request, p99 ", "main")
            browser.until_text("live", "#live")
            assert browser.run("return document.getElementById('trouble').hidden")
        browser.until_text("No connection to the dashboard", "#trouble", timeout_s=60)
    finally:
        broker.kill()
        broker.wait()
        shutil.rmtree(folder)
    browser.errors()  # Requests that failed are logged as errors.

"""A headless Chromium, driven through chromedriver by the WebDriver protocol: JSON over HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

_START_S = 60.0
_ANSWER_S = 90.0
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class BrowserError(Exception):
    """The browser refused a command, or something did not appear in time."""


def is_installed() -> bool:
    """Whether Chromium and its driver are on the PATH."""
    return bool(shutil.which("chromedriver") and _chromium())


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


class HeadlessBrowser:
    """One window of a browser with a profile of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        """Start the driver on a free port; ``folder`` gets its log and the profile."""
        self._base = f"http://127.0.0.1:{port}"
        self._log = (folder / "chromedriver.log").open("wb")
        self._driver = subprocess.Popen(  # noqa: S603 - found on the PATH
            [shutil.which("chromedriver") or "", f"--port={port}"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        arguments += [
            f"--user-data-dir={folder / 'profile'}",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        arguments += ["--disable-background-networking", "--disable-component-update"]
        options = {"binary": _chromium(), "args": arguments}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "acceptInsecureCerts": True,
        }
        try:
            self._wait_for_driver()
            session = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._end_driver()
            raise
        self._session = f"/session/{session['sessionId']}"

    def close(self) -> None:
        """Close the window, and end the driver."""
        try:
            self._send("DELETE", self._session)
        finally:
            self._end_driver()

    def open(self, url: str) -> None:
        """Load a page."""
        self.command("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Run the body of a function in the page, and return what it returns."""
        return self.command("POST", "/execute/sync", {"script": script, "args": [*arguments]})

    def text(self, selector: str = "body") -> str:
        """Return the text of an element as a person sees it; empty if there is none."""
        return str(
            self.run("return document.querySelector(arguments[0])?.innerText || ''", selector)
        )

    def click(self, text: str, within: str = "body") -> None:
        """Click the first visible button or link with this text, or this label."""
        self.until(lambda: self.run(_CLICK, within, text), f"a button {text!r} in {within}")

    def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field."""
        script = "const e = document.querySelector(arguments[0]);"
        script += "if (e) e.value = arguments[1]; return !!e"
        self.until(lambda: self.run(script, selector, text), f"a field {selector}")

    def press(self, keys: str) -> None:
        """Type keys into the element that has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self.command("POST", "/actions", {"actions": [source]})

    def until_text(self, text: str, selector: str = "body", *, timeout_s: float = 30.0) -> None:
        """Wait until an element shows a text."""
        self.until(lambda: text in self.text(selector), f"{text!r} in {selector}", timeout_s)

    def until(self, is_true: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
        """Wait until something is true; ``what`` is for the error."""
        deadline = time.monotonic() + timeout_s  # noqa: TID251 - it waits for another process
        while not is_true():
            if time.monotonic() > deadline:  # noqa: TID251 - as above
                raise BrowserError(f"no {what}; the page shows:\n{self.text()[:3000]}")
            time.sleep(0.05)

    def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        """Set the size of the page, as that of a desktop or of a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if is_phone else 1}
        self.devtools("Emulation.setDeviceMetricsOverride", **size, mobile=is_phone)

    def prefer(self, scheme: str) -> None:
        """Let the page believe that its user prefers ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, is_whole: bool = False) -> None:
        """Write a picture of what is visible, or of the whole page."""
        answer = self.devtools("Page.captureScreenshot", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def errors(self) -> list[str]:
        """Return what the page logged as errors since the last call."""
        rows = self.command("POST", "/se/log", {"type": "browser"})
        return [row["message"] for row in rows if row["level"] == "SEVERE"]

    def devtools(self, method: str, **parameters: object) -> Any:
        """Send a command of the DevTools protocol."""
        document = {"cmd": method, "params": parameters}
        return self.command("POST", "/goog/cdp/execute", document)

    def command(self, method: str, path: str, document: object = None) -> Any:
        """Send a command to this window."""
        return self._send(method, self._session + path, document)

    def _send(self, method: str, path: str, document: object = None) -> Any:
        body = None if method != "POST" else json.dumps(document or {}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self._base + path, body, headers, method=method)  # noqa: S310
        try:
            with _opener.open(request, timeout=_ANSWER_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                value = json.load(error)["value"]
            raise BrowserError(f"{value['error']}: {value['message']}") from error

    def _wait_for_driver(self) -> None:
        deadline = time.monotonic() + _START_S  # noqa: TID251 - it waits for another process
        while True:
            try:
                if self._send("GET", "/status")["ready"]:
                    return
            except OSError as error:
                if time.monotonic() > deadline:  # noqa: TID251 - as above
                    raise BrowserError("chromedriver does not answer") from error
            time.sleep(0.05)

    def _end_driver(self) -> None:
        self._driver.terminate()
        self._driver.wait()
        self._log.close()


_CLICK = """
const [within, text] = arguments;
const isSeen = (e) => e.getClientRects().length > 0 && !e.disabled;
const found = [...document.querySelectorAll(within + " button, " + within + " a")].find(
  (e) => isSeen(e) && (e.innerText.trim() === text || e.getAttribute("aria-label") === text));
if (found) found.click();
return !!found;
"""

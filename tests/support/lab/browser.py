# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A page in a real browser: headless Chromium, controlled through its debugging pipe.

It runs in an empty network namespace, so a page that loads anything over the network fails.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium has no sandbox for root, as which the tests run
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# Widths of windows, and what shows whether a page fits.
PHONE, DESKTOP = 390, 1200
WIDTH = "document.documentElement.scrollWidth"


class Page:
    """One page of a browser."""

    def __init__(self, to_browser: BinaryIO, from_browser: BinaryIO) -> None:
        self._out, self._in = to_browser, from_browser
        self._number = 0
        self._session: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")
        self._call("Page.setLifecycleEventsEnabled", enabled=True)

    def open(self, path: Path, *, width: int = DESKTOP, dark: bool = False) -> None:
        """Load a file in a window of this width; below 500 as on a phone."""
        self._events.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=800, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        # Of this navigation: the event of the first, empty page may come late.
        loader = self._call("Page.navigate", url=path.as_uri())["loaderId"]
        while not any(_is_load(event, loader) for event in self._events):
            self._read()

    def value_of(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write a screenshot of the whole page, also below the window's end."""
        answer = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pages_in_print(self) -> int:
        """Return the number of pages when printed."""
        pdf = base64.b64decode(self._call("Page.printToPDF")["data"])
        return pdf.count(b"/Type /Page\n")

    def requests(self) -> list[str]:
        """Return the URLs requested since the page was opened, the page itself first."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def console_errors(self) -> list[str]:
        """Return the console's messages: errors and violations of the page's policy."""
        return [
            json.dumps(event["params"])
            for event in self._events
            if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def _call(self, method: str, **params: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._session}
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        read = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser has ended"
            read += byte
        message: dict[str, Any] = json.loads(read)
        if "method" in message:
            self._events.append(message)
        return message


def _is_load(event: dict[str, Any], loader: str) -> bool:
    params = event["params"]
    return event["method"] == "Page.lifecycleEvent" and (params["name"], params["loaderId"]) == (
        "load",
        loader,
    )


def show(page: Page, path: Path, *, width: int = DESKTOP, dark: bool = False) -> None:
    """Open a page; assert that it loads nothing else and logs no errors."""
    page.open(path, width=width, dark=dark)
    assert page.requests() == [path.as_uri()], page.requests()
    assert page.console_errors() == [], page.console_errors()


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start a browser with one empty page; end it afterwards."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    # The browser expects its pipe at file descriptors 3 and 4.
    script = f'exec "$@" 3<&{commands} 4>&{answers}'
    # The PID namespace ends the browser's children with it.
    inside = ["unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    argv = [*inside, "chromium", *_FLAGS, f"--user-data-dir={profile}"]
    with (profile.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", script, "browser", *argv],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(commands)
    os.close(answers)
    with os.fdopen(to_browser, "wb", buffering=0) as out, os.fdopen(from_browser, "rb") as read:
        try:
            yield Page(out, read)
        finally:
            process.kill()
            process.wait(10)

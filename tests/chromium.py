"""A Chromium without a window, driven over a pipe: opens a page, runs script in it, tells what the page asked for and said."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--no-sandbox", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--force-color-profile=srgb", "--disable-extensions", "--no-default-browser-check", "about:blank"),
)


def program() -> str | None:
    """The Chromium of this machine: that of $CHROMIUM, else the first on the path; None without one."""
    return os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Page:
    """One page. `requests` are the addresses that it asked for, `errors` what its console and its scripts complained of."""

    send: int
    receive: int
    session: str = ""
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _number: int = 0
    _seen: list[str] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> Any:
        """What the browser answers; raises AssertionError when it refuses."""
        self._number += 1
        told: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self.session:
            told["sessionId"] = self.session
        os.write(self.send, json.dumps(told).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self._seen.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._seen:
            self._note(self._message())

    def run(self, script: str) -> Any:
        """The value of an expression in the page; raises AssertionError when it throws."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def look(self, *, width: int = 1200, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Give the page a size, a colour scheme and a medium."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def press(self, key: str, code: str, text: str = "") -> None:
        """Press and release a key where the focus is."""
        number = {"Enter": 13, "Tab": 9, "Space": 32}.get(code, 0)
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"]
        )

    def _message(self) -> Mapping[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self.receive, 1 << 20)
            if not piece:
                raise AssertionError("the browser ended")
            self._rest += piece
        told, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(told)
        return found

    def _note(self, told: Mapping[str, Any]) -> None:
        method, params = str(told.get("method", "")), told.get("params", {})
        self._seen.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))


@contextlib.contextmanager
def page(profile: Path) -> Iterator[Page]:
    """A new page of a browser that keeps its files below `profile`, and ends with the block."""
    found = program()
    assert found is not None
    to_it, from_us = os.pipe()
    to_us, from_it = os.pipe()
    # The browser reads commands from descriptor 3 and answers on 4.
    command = ["bash", "-c", f'exec "$@" 3<&{to_it} 4>&{from_it}', "bash", found, f"--user-data-dir={profile}", *_FLAGS]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=(to_it, from_it), start_new_session=True, env={**os.environ, "HOME": str(profile)},
    )  # fmt: skip
    os.close(to_it)
    os.close(from_it)
    told = Page(send=from_us, receive=to_us)
    try:
        target = told.call("Target.createTarget", url="about:blank")["targetId"]
        told.session = told.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            told.call(f"{domain}.enable")
        yield told
        told.session = ""
        told.call("Browser.close")
    finally:
        os.close(from_us)
        os.close(to_us)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()

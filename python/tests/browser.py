"""Headless Chromium, driven over the protocol of WebDriver (W3C) with nothing but the standard library."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

# How the protocol calls a reference to an element, and some keys.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"up": "\ue013", "down": "\ue015", "page up": "\ue00e", "end": "\ue010"}
PATIENCE_S = 60


def missing() -> str | None:
    """What is not installed."""
    for command, package in {"chromium": "chromium", "chromedriver": "chromium-driver"}.items():
        if shutil.which(command) is None:
            return f"{command} is not installed (Debian: {package})"
    return None


class Browser:
    """A browser with one page. Its profile is in `folder`, and all of its processes end with it."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 800) -> None:
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                self._driver_url = f"http://127.0.0.1:{line.split()[-1].rstrip('.')}"
                break
        else:
            self._driver.wait()
            raise RuntimeError("chromedriver has not started")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        more = [f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"]
        chosen = {
            "goog:chromeOptions": {"args": [*options, *more], "binary": shutil.which("chromium")}
        }
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", **chosen}}}
        self._session = ""
        try:
            self._session = "/session/" + self._call("POST", "/session", wanted)["sessionId"]
            self._call("POST", "/goog/cdp/execute", {
                "cmd": "Emulation.setDeviceMetricsOverride",
                "params": {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
            })  # fmt: skip
        except BaseException:
            self.close()
            raise

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self._driver_url + self._session + path, data, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"].splitlines()[0]) from None

    def open(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *words: Any) -> Any:
        """The value that a script returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(words)})

    def wait_for(self, script: str, *words: Any) -> Any:
        """Wait until the value that a script returns is true."""
        until = time.monotonic() + PATIENCE_S
        while not (found := self.run(script, *words)):
            assert time.monotonic() < until, f"the page never came to: {script}"
            time.sleep(0.02)
        return found

    def _element(self, selector: str) -> Any:
        wanted = {"using": "css selector", "value": selector}
        return self._call("POST", "/element", wanted)

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self._element(selector)[ELEMENT]}/click")

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def press(self, *keys: str) -> None:
        """Press and release keys, wherever the focus is."""
        moves = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        self._call(
            "POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": moves}]}
        )

    def drag(self, selector: str, places: list[tuple[int, int]], step_ms: int = 20) -> None:
        """Press the pointer's button at the first of some places, relative to the element's middle, and move on."""
        origin = self._element(selector)
        first, *rest = [
            {"type": "pointerMove", "origin": origin, "x": x, "y": y, "duration": step_ms}
            for x, y in places
        ]
        moves = [
            first,
            {"type": "pointerDown", "button": 0},
            *rest,
            {"type": "pointerUp", "button": 0},
        ]
        self._call(
            "POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]}
        )

    def screenshot(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode(self._call("GET", "/screenshot"))

    def close(self) -> None:
        try:
            if self._session:
                self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

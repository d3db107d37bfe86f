"""A headless Chromium, told what to do through the DevTools protocol over a pair of pipes.

Which browser, says `debian_chromium`. Messages are JSON with a NUL
behind each (`--remote-debugging-pipe`), so that no WebSocket is needed.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PATIENCE = 120.0


class Chromium:
    """One browser process with a profile of its own, and one page in it."""

    def __init__(self, command: list[str]) -> None:
        self.profile = tempfile.mkdtemp(prefix="hb-chromium-")
        (commands_out, commands), (events, events_in) = os.pipe(), os.pipe()
        arguments = [
            *command,
            "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
            "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
            "about:blank",
        ]  # fmt: skip

        def place() -> None:  # the browser reads from 3 and writes to 4
            kept = [os.dup(commands_out), os.dup(events_in)]
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        self.process = subprocess.Popen(
            arguments,
            preexec_fn=place,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_out)
        os.close(events_in)
        self._commands, self._events = commands, events
        self._numbers = itertools.count(1)
        self._rest = b""
        self.seen: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    _session: str | None = None

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._events], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._events, 1 << 20)
            if not part:
                raise ConnectionError("the browser has ended")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.seen.append(message)
        return message

    def send(self, method: str, **parameters: Any) -> Any:
        """A command; its result."""
        number = next(self._numbers)
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._message(deadline)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def go(self, url: str) -> None:
        """Go to a page."""
        self.send("Page.navigate", url=url)

    def eval(self, expression: str) -> Any:
        """What an expression comes to, as JSON has it; a promise is waited for."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENCE) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.eval(expression):
            assert time.monotonic() < deadline, f"{expression} did not come true"
            time.sleep(0.05)

    def size(self, width: int, height: int, *, mobile: bool = False) -> None:
        """The size of the window, in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=mobile,
        )  # fmt: skip

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot as PNG."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def scheme(self, name: str) -> None:
        """What the system prefers: `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def press(self, key: str) -> None:
        """A key, by its name of the DOM: Tab, Enter, ArrowRight or a space."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        parameters = {"key": key, "windowsVirtualKeyCode": code, "text": text}
        self.send("Input.dispatchKeyEvent", type="keyDown", **parameters)
        self.send("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def violations(self, axe: str) -> list[str]:
        """What axe-core, given as text, finds wrong for those who do not see or use a mouse.

        Each as the rule, what to do about it, and the elements.
        """
        if not self.eval("typeof axe === 'object'"):
            self.eval(f"{axe};true")
        found = self.eval(
            "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations)"
        )
        return [
            f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']]}"
            f" {one['nodes'][0]['any'][:1]}"
            for one in found
        ]

    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.seen
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Exceptions, and what the browser logged as an error (violations of the policy, too)."""
        found = []
        for event in self.seen:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error" and "favicon" not in entry.get("url", ""):
                    found.append(f"{entry['text']} {entry.get('url', '')}")
        return found

    def close(self) -> None:
        """End the process and remove its profile."""
        os.close(self._commands)
        os.close(self._events)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(240)
        shutil.rmtree(self.profile, ignore_errors=True)


def opened(browser: Chromium, served: Any) -> None:
    """The page of a node that is served, let in by a code, with its first frame."""
    browser.go("about:blank")
    browser.wait("location.href === 'about:blank'")
    browser.seen.clear()
    browser.scheme("light")
    browser.go(served.client().offer_session()["url"])
    browser.wait("document.body?.dataset.frames >= 1")

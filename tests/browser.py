"""A real browser for tests of pages: Chromium without a window, asked over a pipe.

Which one it is, `tools/browser.py` says: the machine's own, or one that `make browser` has put beside the tests'
packages. Nothing of it goes over a network, but for pages that a test serves on this machine.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, Self

from tools.browser import environment, found

END_SECONDS = 10.0  # for it to end when its input has ended
ANSWER_SECONDS = 240.0  # against hanging

# Chromium reads commands from file 3 and writes answers to file 4, whatever numbers they have here.
MOVED = """
import fcntl, os, sys
files = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
for number, each in zip((3, 4), files):
    os.dup2(each, number)
    os.close(each)
os.execv(sys.argv[3], sys.argv[3:])
"""

Scheme = Literal["light", "dark"]


class Browser:
    """Chromium, with one page at a time. A context manager."""

    def __init__(self) -> None:
        binary = found()
        self._profile = tempfile.mkdtemp(prefix="headwater-browser-")
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with the browser
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        options = [
            "--headless",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            "--no-sandbox",  # it opens pages of the tests only
            "--no-zygote",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--no-proxy-server",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", MOVED, str(commands), str(answers), str(binary), *options, "about:blank"],
            env=environment(binary),
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=(commands, answers),
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._session: str | None = None
        self._rest = b""
        self._events: list[dict[str, Any]] = []
        try:
            target = self._ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self._ask("Page.enable")
        except BaseException:
            self.__exit__()
            raise

    def open(self, page: Path, *, width: int, height: int = 900, scheme: Scheme = "light") -> None:
        """Show a file in a window of that size, light or dark."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.visit(page.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Show a page, of this machine."""
        self._events.clear()
        self._ask("Page.navigate", url=address)
        while not any(each.get("method") == "Page.loadEventFired" for each in self._events):
            self._read()

    def run(self, script: str) -> Any:
        """The value of an expression of the page."""
        told = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise AssertionError(f"browser: {told['exceptionDetails']}")
        return told["result"].get("value")

    def picture(self, clip: tuple[float, float, float, float] | None = None) -> bytes:
        """The whole page as PNG, or what lies within x, y, width and height."""
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        if clip is not None:
            options["clip"] = dict(zip(("x", "y", "width", "height"), clip, strict=True), scale=1)
        return base64.b64decode(self._ask("Page.captureScreenshot", **options)["data"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._commands)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._errors.close()
        with suppress(OSError):
            shutil.rmtree(self._profile)

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        with suppress(BrokenPipeError):  # then it has ended, which reading tells
            os.write(self._commands, json.dumps(asked).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass
        if "error" in answer:
            raise AssertionError(f"browser: {method}: {answer['error']}")
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        """The next answer or event; events are kept."""
        while b"\0" not in self._rest:
            if not select.select([self._answers], [], [], ANSWER_SECONDS)[0]:
                raise AssertionError(f"browser: it has said nothing for {ANSWER_SECONDS:g} s")
            more = os.read(self._answers, 1 << 20)
            if not more:
                self._errors.seek(0)
                raise AssertionError(f"browser: it has ended; it said: {self._errors.read()[-2000:].decode()}")
            self._rest += more
        text, self._rest = self._rest.split(b"\0", 1)
        told: dict[str, Any] = json.loads(text)
        if "method" in told:
            self._events.append(told)
        return told

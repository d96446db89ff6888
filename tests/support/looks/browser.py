"""Chromium without a window, driven by the DevTools protocol over a pair of pipes."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Final, Self

__all__ = ["Browser", "BrowserError", "chromium"]

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-gpu",
    "--hide-scrollbars",
)
AS_ROOT: Final = ("--no-sandbox",)
"""Chromium's sandbox refuses to run as root."""
_AT_3_AND_4: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from descriptor 3 and writes its messages to 4."""
_ABOVE: Final = 10
"""Descriptors from here on are none of those two."""
_MESSAGE_BYTES: Final = 1 << 16


class BrowserError(Exception):
    """Chromium ended, or refused a command."""


def chromium() -> str | None:
    """The program, by the variable `CHROMIUM` or on the PATH."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser that ends with the block."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._folder = tempfile.TemporaryDirectory(
            prefix="oncelog-browser-", ignore_cleanup_errors=True
        )
        self._last_id = 0
        self._session = ""
        self._read = b""
        self._loaded = False

    def __enter__(self) -> Self:
        its_in, our_out = map(_moved_up, os.pipe())
        our_in, its_out = map(_moved_up, os.pipe())
        self._out, self._in = our_out, our_in
        root = AS_ROOT if os.getuid() == 0 else ()
        profile = f"--user-data-dir={self._folder.name}"
        launcher = (sys.executable, "-c", _AT_3_AND_4, str(its_in), str(its_out))
        self._process = subprocess.Popen(
            [*launcher, self._program, *OPTIONS, *root, profile, "about:blank"],
            pass_fds=(its_in, its_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_in)
        os.close(its_out)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.ask("Page.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # It ends with its commands.
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """The result of a command. Raises `BrowserError`."""
        self._last_id += 1
        command = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next_message()
            if message.get("id") != self._last_id:
                continue
            if "error" in message:
                raise BrowserError(f"{method}: {message['error']}")
            result: dict[str, Any] = message["result"]
            return result

    def open(self, url: str) -> None:
        """Return once the page and all that it loads are there."""
        self._loaded = False
        said = self.ask("Page.navigate", url=url)
        if "errorText" in said:
            raise BrowserError(f"{url}: {said['errorText']}")
        while not self._loaded:
            self._next_message()

    def run(self, script: str) -> Any:
        """The value of an expression in the page. Raises `BrowserError` with what it throws."""
        said = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in said:
            raise BrowserError(str(said["exceptionDetails"]))
        return said["result"].get("value")

    def _next_message(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            read = os.read(self._in, _MESSAGE_BYTES)
            if not read:
                raise BrowserError(f"{self._program} ended")
            self._read += read
        raw, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._loaded |= message.get("method") == "Page.loadEventFired"
        return message


def _moved_up(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    os.close(descriptor)
    return moved

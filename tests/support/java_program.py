"""A Java program that runs beside a test until it is ended."""

import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from bench.peer import java

HEAP = "-Xmx384m"
STOP_TIMEOUT_S = 30


class JavaProgram:
    """A JVM; what it prints goes to a file. A context manager that ends it."""

    def __init__(self, class_path: str, *arguments: str, log: Path) -> None:
        # One compiler tier: it lives for seconds.
        command = [java(), HEAP, "-XX:TieredStopAtLevel=1", "-cp", class_path, *arguments]
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def check(self, wait_s: float = 0) -> None:
        """Give it time; raises `AssertionError` with its last words if it ends by itself."""
        with suppress(subprocess.TimeoutExpired):
            code = self.wait(wait_s)
            raise AssertionError(f"it ended with code {code}:\n{self.said()[-3000:]}")

    def wait(self, timeout_s: float) -> int:
        """Its exit code. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(timeout_s)

    def said(self) -> str:
        """All that it printed until now."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "JavaProgram":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

"""Apache's own tools as their users call them, in one JVM: each start of one costs a second."""

import atexit
import json
import select
import subprocess
import threading
from functools import cache
from pathlib import Path

from tests.support.peer import jars, java

__all__ = ["run_tool"]

SOURCE = Path(__file__).with_name("java") / "Tools.java"


class ToolsProcess:
    """A JVM that runs one tool after the other until this process ends."""

    def __init__(self) -> None:
        # Tools are short, so the second compiler only costs.
        command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars()]
        self._process = subprocess.Popen(
            [*command, str(SOURCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def ask(self, request: str, timeout_s: float) -> str:
        """The line that answers one request. A tool that hangs ends the JVM and raises."""
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None
        assert answers is not None
        with self._lock:
            given.write(request + "\n")
            given.flush()
            ready, _, _ = select.select([answers], [], [], timeout_s)
            if not ready:
                self._process.kill()
            return answers.readline()

    def close(self) -> None:
        """It ends when it is asked for nothing more."""
        self._process.communicate()


@cache
def _tools() -> ToolsProcess:
    tools = ToolsProcess()
    atexit.register(tools.close)
    return tools


def run_tool(
    main_class: str, *args: str, timeout_s: int = 60, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache's tools (``kafka.tools.DumpLogSegments``) to its end.

    `text` is what it reads from its standard input. Raises `AssertionError` if it does not end.
    """
    request = json.dumps({"main": main_class, "args": args, "text": text or ""})
    answer = _tools().ask(request, timeout_s)
    assert answer, f"{main_class} {args} did not end within {timeout_s} s, or the JVM died"
    told = json.loads(answer)
    return subprocess.CompletedProcess([main_class, *args], told["code"], told["out"], told["err"])

"""The loads of the Java client: transactions by the newer protocol (TV2) and reading back.

`java/Load.java` runs in a JVM of its own for each broker and stays between windows, so that the
client is as warm as the broker.
"""

import subprocess
from pathlib import Path
from statistics import fmean

from bench.loads import WINDOW_S, Filled
from bench.systems import Endpoint
from bench.work import PARTITIONS, Plain, Window
from tests.support.java_program import compiled
from tests.support.peer.kafka import jars, java

SOURCES = Path(__file__).with_name("java")
READS = 2
CLOSE_TIMEOUT_S = 20


class JavaClient:
    """One JVM with a program; `ask` gives it a command and returns its numbers."""

    def __init__(
        self, *arguments: str, program: str = "Load", class_path: str | None = None
    ) -> None:
        path = jars() if class_path is None else class_path
        classes = f"{path}:{compiled(program, SOURCES, class_path)}"
        command = [java(), "-Xmx512m", "-cp", classes, program, *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, *words: object) -> list[float]:
        """Raises `RuntimeError` when the program has ended."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Java client ended with code {process.wait()}")
        return [float(word) for word in line.split()]

    def close(self) -> None:
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class JavaTransactions(Plain):
    """Begin, send one record, commit, back to back."""

    def __init__(self, system: Endpoint) -> None:
        super().__init__(system)
        self._client = JavaClient(system.bootstrap_servers)

    def run(self) -> Window:
        count, seconds, p50, p99 = self._client.ask("transactions", self.topic, WINDOW_S)
        figures = {"txn/s": count / seconds, "p50 ms": p50, "p99 ms": p99}
        return Window(figures, count / seconds, count)

    def close(self) -> None:
        self._client.close()
        super().close()


class JavaConsume(Filled):
    """Read 1000-byte records back from the page cache, twice over in a window."""

    def __init__(self, system: Endpoint) -> None:
        super().__init__(system, 600)
        self._client = JavaClient(system.bootstrap_servers)

    def run(self) -> Window:
        seconds = fmean(self._read() for _ in range(READS))
        rate = self.count / 1000 / seconds
        return Window({"MB/s": rate}, rate, READS * self.count / 1e6)

    def _read(self) -> float:
        return self._client.ask("consume", self.topic, PARTITIONS, self.count)[0]

    def close(self) -> None:
        self._client.close()
        super().close()

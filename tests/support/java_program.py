"""Java programs: compiled once, and running beside a test until they are ended."""

import hashlib
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.support.peer.kafka import ROOT, PeerUnavailable, jars, java

HEAP = "-Xmx384m"
STOP_TIMEOUT_S = 30
CLASSES = ROOT / ".cache" / "java"


def compiled(program: str, sources: Path, class_path: str | None = None) -> Path:
    """Folder of a compiled program, one for each content of a source: some share a name.

    `class_path` is that of Kafka's broker, clients and tools when None. Raises `PeerUnavailable`.
    """
    source = sources / f"{program}.java"
    folder = CLASSES / hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    if (folder / f"{program}.class").exists():
        return folder
    beside = Path(java()).with_name("javac")
    compiler = str(beside) if beside.exists() else shutil.which("javac")
    if compiler is None:
        raise PeerUnavailable("no javac on PATH or beside java: a JDK is needed, not a JRE")
    CLASSES.mkdir(parents=True, exist_ok=True)
    path = jars() if class_path is None else class_path
    with tempfile.TemporaryDirectory(dir=CLASSES, ignore_cleanup_errors=True) as made:
        command = [compiler, "-nowarn", "-cp", path, "-d", made, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"javac failed: {done.stderr.strip()[:300]}")
        with suppress(OSError):  # another process made it meanwhile
            Path(made).rename(folder)
    return folder


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

"""A standalone Spark cluster on loopback: a master and workers from the pip package of PySpark."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

from oncelog.spark import find_java_home
from tests.support.peer.child import free_port

HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
DAEMON_MEMORY = "256m"


class Cluster:
    """One master and so many workers, each a process that can be killed; a context manager.

    A worker's executors are its children. `memory_mb` is what it may give to them.
    """

    def __init__(
        self, folder: Path, *, workers: int = 1, cores: int = 2, memory_mb: int = 640
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._worker_count = workers
        self._cores = cores
        self._memory_mb = memory_mb

    @property
    def master(self) -> str:
        """What ``--master`` takes."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What the daemons print."""
        return self.folder / "daemons.log"

    def __enter__(self) -> "Cluster":
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start(MASTER, "--port", str(self.port), "--webui-port", "0")
            self._wait_for_master()
            for _ in range(self._worker_count):
                self.add_worker()
        except BaseException:
            self.stop()
            raise
        return self

    def add_worker(self) -> "subprocess.Popen[bytes]":
        """One more worker, which tells the master of itself in its own time."""
        size = ["--cores", str(self._cores), "--memory", f"{self._memory_mb}m"]
        place = ["--work-dir", str(self.folder / "work"), "--webui-port", "0"]
        return self._start(WORKER, *size, *place, self.master)

    def stop(self) -> None:
        """End all of it, executors included."""
        for process in reversed(self.processes):
            kill_group(process)
        self.processes.clear()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, main_class: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [str(HOME / "bin" / "spark-class"), main_class, "--host", "127.0.0.1", *arguments]
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=environment() | {"SPARK_DAEMON_MEMORY": DAEMON_MEMORY},
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def _wait_for_master(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"no master on port {self.port}: {self.log.read_text()[-500:]}")


def environment() -> dict[str, str]:
    """The variables of a Spark process that is to find nothing of this checkout by them."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    kept.pop("PYTHONPATH", None)
    kept.pop("VIRTUAL_ENV", None)
    return kept | {
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to a process and its children, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()

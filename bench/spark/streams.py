"""Kafka Streams on the same job, in one JVM per broker (`bench/java/Streams.java`)."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.javaloads import SOURCES, JavaClient
from bench.systems import System
from tests.support.java_program import compiled
from tests.support.peer.kafka import streams_jars

PROGRAM = "Streams"


def ready() -> None:
    """Fetch its jars and compile the program. Raises `PeerUnavailable`."""
    compiled(PROGRAM, SOURCES, streams_jars())


class StreamsAt:
    """The JVM that works with one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._state = Path(tempfile.mkdtemp(prefix="oncelog-bench-streams-"))
        arguments = (bootstrap_servers, str(self._state))
        self._client = JavaClient(*arguments, program=PROGRAM, class_path=streams_jars())

    def copy(
        self, guarantee: str, commit_ms: int, source: str, target: str, per_partition: int
    ) -> float:
        """Seconds from the first record until all are committed."""
        return self._client.ask("copy", guarantee, commit_ms, source, target, per_partition)[0]

    @contextmanager
    def running(self, guarantee: str, commit_ms: int, source: str, target: str) -> Iterator[None]:
        """It copies whatever comes."""
        self._client.ask("start", guarantee, commit_ms, source, target)
        try:
            yield
        finally:
            self._client.ask("stop")

    def close(self) -> None:
        self._client.close()
        shutil.rmtree(self._state, ignore_errors=True)


class StreamsClient:
    """A JVM for each broker, started when first asked for."""

    def __init__(self) -> None:
        self._at: dict[str, StreamsAt] = {}

    def at(self, system: System) -> StreamsAt:
        """The one for a broker."""
        if system.name not in self._at:
            self._at[system.name] = StreamsAt(system.bootstrap_servers)
        return self._at[system.name]

    def close(self) -> None:
        for one in self._at.values():
            one.close()

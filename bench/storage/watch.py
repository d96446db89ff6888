"""Measures another client's latency while a broker does a large operation."""

import threading
import time
from types import TracebackType

from bench.systems import System
from bench.work import flush, fresh_topic, producer

PAUSE_S = 0.001


class Watch:
    """Produces a record and waits for its answer, again and again, in a thread of its own.

    A context manager; `longest_ms` says the longest that one of them took.
    """

    def __init__(self, system: System) -> None:
        self._topic = fresh_topic(system, 1)
        self._client = producer(system, **{"linger.ms": 0})
        self._produce()
        # The smallest that is told, so that ratios have something to divide by.
        self._longest_s = PAUSE_S
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._failure: Exception | None = None

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    @property
    def longest_ms(self) -> float:
        """The longest wait for an answer."""
        return self._longest_s * 1000

    def _run(self) -> None:
        try:
            while not self._over.wait(PAUSE_S):
                begun = time.perf_counter()
                self._produce()
                self._longest_s = max(self._longest_s, time.perf_counter() - begun)
        except Exception as failure:  # noqa: BLE001 - it is raised again in the thread of its owner
            self._failure = failure

    def _produce(self) -> None:
        self._client.produce(self._topic, bytes(100), partition=0)
        flush(self._client)

"""`EmbeddedBroker`: the broker inside a Python process, for tests, notebooks and applications.

The same broker as `oncelog serve`, on an ephemeral port of the local interface. In an event loop
use ``async with``; elsewhere ``with``, which runs it on a loop of its own in a thread. Without
`data_dir` it keeps its files in a temporary folder that goes with it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig
from oncelog.runtime.loop import new_event_loop
from oncelog.runtime.open_files import raise_limit

__all__ = ["EmbeddedBroker"]


class EmbeddedBroker:
    """One broker, started by entering and stopped by leaving; it can be entered again.

    `config` takes Kafka's keys; values are turned into text. `port` 0 takes any free port; entered
    again, it takes that port again, so that clients find it.

    Usage::

        with EmbeddedBroker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    """

    def __init__(
        self,
        data_dir: str | None = None,
        *,
        port: int = 0,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self._given = {key: _text(value) for key, value in (config or {}).items()}
        self._port = port
        self._data_dir = data_dir
        self._temporary = data_dir is None
        self._broker: Broker | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, for clients. Only while the broker runs."""
        return self.broker.bootstrap_servers

    @property
    def broker(self) -> Broker:
        """The broker itself. Only while it runs; touch it only from its own loop."""
        if self._broker is None:
            raise RuntimeError("the embedded broker is not running")
        return self._broker

    async def __aenter__(self) -> EmbeddedBroker:
        """Start in the running loop. Raises as `Broker.start`."""
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop cleanly."""
        try:
            await self._stop()
        finally:
            self._remove_temporary()

    def __enter__(self) -> EmbeddedBroker:
        """Start in a thread with a loop of its own; returns when clients can connect.

        Raises as `Broker.start`.
        """
        started = threading.Event()
        failures: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run_thread, args=(started, failures), name="oncelog-broker", daemon=True
        )
        self._thread.start()
        started.wait()
        if failures:
            self._thread.join()
            self._thread = None
            self._remove_temporary()
            raise failures[0]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop cleanly and wait for it. Raises what stopped the broker, if something did."""
        thread, self._thread = self._thread, None
        broker = self._broker
        if self._loop is not None and broker is not None:
            self._loop.call_soon_threadsafe(broker.request_stop)
        if thread is not None:
            thread.join()
        self._remove_temporary()
        if broker is not None and broker.stopped_because is not None and error is None:
            raise broker.stopped_because

    def _run_thread(self, started: threading.Event, failures: list[BaseException]) -> None:
        async def live() -> None:
            self._loop = asyncio.get_running_loop()
            try:
                broker = await self._start()
            except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
                failures.append(error)
                return
            finally:
                started.set()
            await broker.wait_until_stop_is_requested()
            await self._stop()

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(live())

    async def _start(self) -> Broker:
        if self._broker is not None:
            raise RuntimeError("the embedded broker is running already")
        if self._data_dir is None:
            self._data_dir = tempfile.mkdtemp(prefix="oncelog-")
        raise_limit()
        own = {"listeners": f"PLAINTEXT://127.0.0.1:{self._port}", "log.dirs": self._data_dir}
        broker = Broker(BrokerConfig(own | self._given))
        await broker.start()
        self._broker = broker
        self._port = broker.server.port
        return broker

    async def _stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()

    def _remove_temporary(self) -> None:
        if self._temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

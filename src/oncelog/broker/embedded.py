"""`EmbeddedBroker`: the broker inside a Python process, for tests, notebooks and applications.

The same broker as `oncelog serve`, on an ephemeral port of the local interface. It runs on a loop
of its own in a thread of its own, whether it is entered by ``with`` or by ``async with``: so a
client that blocks its thread, or the loop of an asyncio test, never waits for itself. Without
`data_dir` it keeps its files in a temporary folder that goes with it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - see `_ending`: it registers before us
import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self, TypeVar

from oncelog.broker.broker import Broker
from oncelog.broker.embedded_hints import EmbeddedHints, hinting
from oncelog.broker.embedded_users import EmbeddedUsers, new_security
from oncelog.controller.decision import ControllerEvent
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import OncelogError
from oncelog.metadata.store import MetadataStore
from oncelog.runtime.background_loop import require_threads
from oncelog.runtime.loop import new_event_loop
from oncelog.runtime.open_files import raise_limit
from oncelog.runtime.temporary import make_temporary_folder, remove_temporary_folder

__all__ = ["EMBEDDED_DEFAULTS", "EmbeddedBroker"]

T = TypeVar("T")

EMBEDDED_DEFAULTS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "1",
}
"""Configs whose default differs from Kafka's, because tests wait for them.

docs/testing.md gives the reasons.
"""


class EmbeddedBroker(EmbeddedUsers, EmbeddedHints):
    """One broker, started by entering and stopped by leaving; it can be entered again.

    `data_dir` is a folder, made when it is missing; `log.dirs` in `config` may name several.
    `config` takes Kafka's keys; values are turned into text; keys that are not given have Kafka's
    defaults, or those of `EMBEDDED_DEFAULTS`.
    `port` 0 takes any free port; entered again, it takes that port again, so that clients find it.
    `secure` has it speak TLS, and clients log in by SCRAM as admin, app or reader: `client_config`
    has their settings. It needs the extra `secure`.

    Entering raises `ConfigError`, `FolderInUse`, `AddressUnavailable` or `StorageFailure`, each
    with one sentence, and `RuntimeError` while the broker is running. A forked child may use
    `bootstrap_servers`; leaving the block there does nothing.

    Usage::

        with EmbeddedBroker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    """

    @hinting
    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        config: Mapping[str, object] | None = None,
        secure: bool = False,
    ) -> None:
        self._given = {key: _text(value) for key, value in (config or {}).items()}
        self._port = port
        self._given_dir = None if data_dir is None else os.fspath(data_dir)
        self._given_dirs = self._given.get("log.dirs") or self._given.get("log.dir")
        self._data_dir: str | None = None
        self._is_temporary = self._given_dir is None and self._given_dirs is None
        """Whether the data ends with the block: then nothing is synced to the disk."""
        self._broker: Broker | None = None
        self._bootstrap_servers: str | None = None
        self._life: _BrokerThread | None = None
        self._security = new_security() if secure else None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, for clients. Only while the broker runs."""
        return _running(self._bootstrap_servers)

    @property
    def data_dir(self) -> str:
        """The folder of its files. Only while the broker runs."""
        return _running(self._data_dir)

    @property
    def broker(self) -> Broker:
        """The broker itself. Only while it runs; other threads reach into it by `call`."""
        return _running(self._broker)

    @property
    def is_running(self) -> bool:
        """Whether it has started and is not stopped, killed or left."""
        return self._broker is not None

    def _submit(self, event: ControllerEvent[T]) -> T:
        return self.run(self.broker.controller.submit(event))

    def call(self, work: Callable[[Broker], T]) -> T:
        """Run `work(broker)` in the broker's event loop, and return its result.

        It must not block. Not to be called from the broker's loop.
        """

        async def in_loop() -> T:
            return work(self.broker)

        return self.run(in_loop())

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the broker's event loop, and wait in this thread for its result."""
        life = self._life
        if life is None:
            work.close()
        return _running(life).run(work)

    async def __aenter__(self) -> Self:
        """Start, without blocking the running loop. Raises as the class says."""
        life = self._begin()
        try:
            await asyncio.shield(asyncio.wrap_future(life.started))
        except BaseException:
            self._end(life)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop cleanly. Raises what stopped the broker, if something did."""
        life = self._life
        if life is None:
            return
        life.leave(self._request_stop)
        try:
            await asyncio.shield(asyncio.wrap_future(life.ended))
        finally:
            self._leave(error)

    def __enter__(self) -> Self:
        """Start; returns when clients can connect. Raises as the class says."""
        life = self._begin()
        try:
            life.started.result()
        except BaseException:
            self._end(life)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop cleanly and wait for it. Raises what stopped the broker, if something did."""
        self._leave(error)

    # In the thread of the caller.

    def _begin(self) -> _BrokerThread:
        """Begin a life: its thread runs, the broker in it may not yet."""
        require_threads()
        if self._life is not None:
            raise RuntimeError(
                "the embedded broker is running already: make another one, or leave this one first"
            )
        self._data_dir = self._choose_folder()
        self._life = _BrokerThread(self._live)
        _embedded.add(self)
        return self._life

    def _choose_folder(self) -> str:
        """Return the given folder, else the first of the given config, else a temporary one."""
        given = self._given_dir
        if given is None:
            if self._given_dirs is None:
                return make_temporary_folder("oncelog-")
            return self._given_dirs.partition(",")[0].strip()
        if self._given_dirs is not None:
            raise ConfigError(f"the data folder is given twice: {given}, and log.dirs in config")
        if not given:
            raise ConfigError("the data folder has no name: leave it out for a temporary one")
        if "," in given:
            raise ConfigError(f"the data folder {given} must have no comma in its name")
        return given

    def _leave(self, error: BaseException | None) -> None:
        """End the run, if there is one; raise its failure unless `error` is being raised."""
        life, broker = self._life, self._broker
        if life is None:
            return
        self._end(life)
        life.ended.result()
        if broker is not None and broker.stopped_because is not None and error is None:
            raise broker.stopped_because

    def _end(self, life: _BrokerThread) -> None:
        """End a life and wait for it; its temporary folder goes with it."""
        life.leave(self._request_stop)
        life.thread.join()
        folder, self._data_dir = self._data_dir, None
        self._life = self._bootstrap_servers = None
        if folder is not None:
            remove_temporary_folder(folder)

    def _let_go_in_child(self) -> None:
        """After a fork: the life is the parent's, and what the child has of it is in its way."""
        life, broker = self._life, self._broker
        self._life = self._broker = None
        if broker is not None:
            broker.let_go_in_child()
        # The loop's C objects cannot be collected in a process that they do not run in: the child
        # would crash when it ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((life, broker)))

    # In the broker's own thread.

    async def _live(self, life: _BrokerThread) -> None:
        """The broker's run, from its start until it is left or fails."""
        broker = await self._start_broker()
        life.started.set_result(None)
        while True:
            if life.is_left:
                broker.request_stop()
            await broker.wait_until_stop_is_requested()
            await self._stop_broker()
            again = not life.is_left and await self._starts_again()
            if life.is_left or not again:
                return
            broker = await self._start_broker()

    async def _starts_again(self) -> bool:
        """Whether a broker that ended by itself is restarted in this run."""
        return False

    def _request_stop(self) -> None:
        if self._broker is not None:
            self._broker.request_stop()

    async def _start_broker(self) -> Broker:
        raise_limit()
        broker = self._make_broker(self._config())
        await broker.start()
        try:
            await self._make_users(broker)
        except BaseException:
            await broker.stop()
            raise
        self._broker = broker
        self._port = broker.server.port
        self._bootstrap_servers = broker.bootstrap_servers
        return broker

    def _config(self, *, has_expired: bool = False) -> BrokerConfig:
        """Return the configs of the next life; a secure one's certificate may have expired."""
        own = {"listeners": f"PLAINTEXT://127.0.0.1:{self._port}"}
        own["log.dirs"] = self._given_dirs or self.data_dir
        if self._security is not None:
            own |= self._security.config(self._given, self._port, has_expired=has_expired)
        return BrokerConfig({**EMBEDDED_DEFAULTS, **own, **self._given})

    async def _make_users(self, broker: Broker) -> None:
        """Make the users of a secure broker, unless the metadata has them."""
        if self._security is None or self._security.is_known_to(broker.image.scram_credentials):
            return
        for outcome in await broker.controller.submit(self._security.credentials):
            if outcome.error:
                raise OncelogError(f"the user {outcome.user} is not made: {outcome.message}")

    def _make_broker(self, config: BrokerConfig) -> Broker:
        """Create the broker; subclasses replace its edges here."""
        return Broker(config, syncs=not self._is_temporary, store=self._open_store())

    def _open_store(self) -> MetadataStore | None:
        """Return a way to the metadata of a cluster; None: the broker is alone, and has its own."""
        return None

    async def _stop_broker(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()


class _BrokerThread:
    """One run of the broker: a thread with an event loop, in which `live` runs until it ends."""

    def __init__(self, live: Callable[[_BrokerThread], Coroutine[object, object, None]]) -> None:
        self.started: Future[None] = Future()
        self.ended: Future[None] = Future()
        self.is_left = False
        """Whether it was asked to end. Its own loop sets and reads this."""
        self._live = live
        self._loop = new_event_loop()
        # Daemonic: a program that never leaves the block can end all the same.
        self.thread = threading.Thread(target=self._run, name="oncelog-broker", daemon=True)
        self.thread.start()

    def leave(self, request_stop: Callable[[], None]) -> None:
        """Ask it to end; harmless when it has."""

        def ask() -> None:
            self.is_left = True
            request_stop()

        # The loop is closed once the life is over.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(ask)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine in the life's loop, and wait for it in this thread."""
        if threading.current_thread() is self.thread:
            work.close()
            raise RuntimeError("a call from the broker's own thread would wait for itself")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live(self))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            if not self.started.done():
                self.started.set_exception(error)
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)


def _running(value: T | None) -> T:
    if value is None:
        raise RuntimeError("the embedded broker is not running: enter it by `with` or `async with`")
    return value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_embedded: weakref.WeakSet[EmbeddedBroker] = weakref.WeakSet()


def _forked() -> None:
    for embedded in list(_embedded):
        embedded._let_go_in_child()  # noqa: SLF001 - a function of this class


def _ending() -> None:
    """The interpreter ends: a block that was never left is left now."""
    for embedded in list(_embedded):
        embedded.__exit__(None, None, None)


os.register_at_fork(after_in_child=_forked)
# Before the threads of executors are ended, which is earlier than `atexit`. Later there would be no
# clean stop. Python's own executors register so too.
threading._register_atexit(_ending)  # type: ignore[attr-defined]  # noqa: SLF001

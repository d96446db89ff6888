"""`EmbeddedCluster`: several brokers inside one Python process, for tests of what a cluster does.

Each broker has a thread and an event loop of its own, a port, and a temporary folder. Their
metadata is in memory. A broker's session ends when the broker ends, never by time: a breakpoint or
a slow machine elects no other leader.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import oncelog.broker
import oncelog.replication
from oncelog.broker.broker import Broker
from oncelog.broker.embedded import EmbeddedBroker
from oncelog.broker.embedded_users import EmbeddedUsers, new_security
from oncelog.controller.cluster_config import replicated_defaults
from oncelog.controller.decision import ControllerEvent
from oncelog.core.cluster_limits import EMBEDDED_BROKERS_COUNT_MAX
from oncelog.core.config_definition import ConfigError
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import MetadataStore

if TYPE_CHECKING:
    from oncelog.broker.embedded_security import EmbeddedSecurity

__all__ = ["EmbeddedCluster"]

ReplyT = TypeVar("ReplyT")


class EmbeddedMember(EmbeddedBroker):
    """One broker of a cluster."""

    def __init__(
        self, store: MemoryStore, config: Mapping[str, object], security: EmbeddedSecurity | None
    ) -> None:
        super().__init__(config=config)
        self._store = store
        self._security = security

    def _open_store(self) -> MetadataStore:
        return self._store.connection()


_ANONYMOUS: Final = "User:ANONYMOUS"
_PROTOCOL: Final = "security.inter.broker.protocol"


class EmbeddedCluster(EmbeddedUsers):
    """Brokers with the ids 1 to `brokers`, started by entering and stopped by leaving.

    `config` is that of all brokers, with Kafka's keys. Topics have as many replicas as there are
    brokers, up to 3, and `min.insync.replicas` is 2 where there are two brokers or more, unless the
    config says otherwise. Entered again it has no topics.

    `secure` is as in `EmbeddedBroker`: the brokers have the same users, and log in at each other.

    Raises `ConfigError` for a number of brokers or a config that cannot be.

    Usage::

        with EmbeddedCluster(brokers=3) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, object] | None = None,
        secure: bool = False,
    ) -> None:
        if not 1 <= brokers <= EMBEDDED_BROKERS_COUNT_MAX:
            raise ConfigError(
                f"a cluster of {brokers} brokers: it takes 1 to {EMBEDDED_BROKERS_COUNT_MAX}"
            )
        self._given = {**replicated_defaults(brokers), **(config or {})}
        if "node.id" in self._given or "broker.id" in self._given:
            raise ConfigError("the brokers of a cluster have the ids 1, 2 and so on: leave node.id")
        if brokers > 1 and not secure:
            _check_super_users(self._given)
        self._count = brokers
        self._security = new_security() if secure else None
        self._store: MemoryStore | None = None
        self._brokers: tuple[EmbeddedBroker, ...] = ()

    @property
    def brokers(self) -> tuple[EmbeddedBroker, ...]:
        """The brokers, in the order of their ids. Only while the cluster runs."""
        if not self._brokers:
            raise RuntimeError("the cluster is not running: enter it by `with` or `async with`")
        return self._brokers

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of each broker that runs, for clients. Only while the cluster runs."""
        return ",".join(each.bootstrap_servers for each in self.brokers if each.is_running)

    def _submit(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        asked = next(each for each in self.brokers if each.is_running)
        return asked.run(asked.broker.controller.submit(event))

    def __enter__(self) -> Self:
        """Start all brokers at once; returns when clients can connect to each."""
        if self._brokers:
            raise RuntimeError("the cluster is running already: leave it first")
        _import_brokers()
        store = self._store = MemoryStore()
        ids = range(1, self._count + 1)
        made = tuple(self._make_broker(store, {**self._given, "node.id": each}) for each in ids)
        try:
            _at_once(made, lambda broker: broker.__enter__())
        except BaseException:
            self._brokers = made
            self._end()
            raise
        self._brokers = made
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all brokers. Raises what stopped one before, if something did."""
        failure = self._end()
        if failure is not None and error is None:
            raise failure

    async def __aenter__(self) -> Self:
        """Start, without blocking the running loop."""
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, without blocking the running loop."""
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    def _make_broker(self, store: MemoryStore, config: Mapping[str, object]) -> EmbeddedBroker:
        return EmbeddedMember(store, config, self._security)

    def _end(self) -> BaseException | None:
        """End all brokers at once; return what stopped one of them before."""
        brokers, self._brokers = self._brokers, ()
        running = [each for each in brokers if each.is_running]
        stopped = [each.call(lambda broker: broker.stopped_because) for each in running]
        # What they hold goes with them, so none hands over what it leads.
        for each in running:
            each.call(Broker.kill)
        _at_once(brokers, lambda broker: broker.__exit__(None, None, None))
        return next(filter(None, stopped), None)


@cache
def _import_brokers() -> None:
    """Import in one thread what brokers import on first use, each in its own.

    pytest parses our modules as it imports them, and two threads of CPython 3.11 or 3.12 that parse
    at once may each fail with SystemError (python/cpython#106905).
    """
    for package in (oncelog.broker, oncelog.replication):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):  # An extra is not installed.
                importlib.import_module(found.name)


def _at_once(brokers: tuple[EmbeddedBroker, ...], work: Callable[[EmbeddedBroker], object]) -> None:
    """Do the work with each broker in a thread of its own. Raises the first failure."""
    with ThreadPoolExecutor(len(brokers), thread_name_prefix="oncelog-cluster") as threads:
        for outcome in [threads.submit(work, broker) for broker in brokers]:
            outcome.result()


def _check_super_users(given: Mapping[str, object]) -> None:
    """Refuse brokers that would refuse each other, and wait for each other without end."""
    is_named = any(key in given for key in ("inter.broker.listener.name", _PROTOCOL))
    users = str(given.get("super.users") or "").split(";")
    if given.get("authorizer.class.name") and not is_named and _ANONYMOUS not in users:
        raise ConfigError(
            f"super.users has to name {_ANONYMOUS}: that is who the brokers of this cluster are to "
            "each other"
        )

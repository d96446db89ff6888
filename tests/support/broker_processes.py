"""Three brokers of one cluster as processes: killed, stopped by signals, cut apart.

Their metadata is in a SQLite file or in a ZooKeeper. A broker reaches ZooKeeper through a proxy of
its own, so that it can be cut off from it; ZooKeeper's process can be killed and stopped as well.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.cut_broker import CLIENTS, Cuts, Pair
from tests.support.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.told import State, Told, ask
from tests.support.workload import QUIET

IDS = (1, 2, 3)
ENTRY = (sys.executable, "-m", "tests.support.cut_broker")
READY_TIMEOUT_S = 60.0
LOOK_AGAIN_S = 0.05


class Proxies:
    """A proxy to ZooKeeper for each broker, in a thread and a loop of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._exits = AsyncExitStack()
        self._proxies: dict[int, TcpProxy] = {}

    def open(self) -> dict[int, str]:
        """Start them; returns the address for each broker."""
        self._thread.start()

        async def begin() -> None:
            for broker_id in IDS:
                opened = await self._exits.enter_async_context(tcp_proxy(self._port))
                self._proxies[broker_id] = opened

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result()
        return {broker_id: proxy.address for broker_id, proxy in self._proxies.items()}

    def hold(self, broker_id: int) -> None:
        """Let nothing pass, in either direction."""
        self._loop.call_soon_threadsafe(self._proxies[broker_id].hold)

    def pass_on(self) -> None:
        """Let everything pass again."""
        for proxy in self._proxies.values():
            self._loop.call_soon_threadsafe(proxy.pass_on)

    def close(self) -> None:
        """End them and their loop."""
        asyncio.run_coroutine_threadsafe(self._exits.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Brokers:
    """The processes by broker id; a context manager that starts and ends them.

    `zookeeper` is ``port/chroot`` on loopback; without it the metadata is in a SQLite file.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, object], zookeeper: tuple[int, str] | None = None
    ) -> None:
        self.folder = folder
        self._cuts = Cuts(folder / "cables")
        self._proxies: Proxies | None = None
        stores = {i: {"oncelog.metadata.file": str(folder / "metadata.sqlite")} for i in IDS}
        if zookeeper is not None:
            self._proxies = Proxies(zookeeper[0])
            addresses = self._proxies.open()
            stores = {i: {"zookeeper.connect": f"{addresses[i]}{zookeeper[1]}"} for i in IDS}
        self.processes = {
            broker_id: BrokerProcess(
                folder / f"broker-{broker_id}",
                {
                    "node.id": str(broker_id),
                    **{key: str(value) for key, value in settings.items()},
                    **stores[broker_id],
                },
                READY_TIMEOUT_S,
                (*ENTRY, str(folder / "cables"), str(broker_id)),
            )
            for broker_id in IDS
        }
        self._ports = {i: process.port for i, process in self.processes.items()}
        self._cuts.write(self._ports, [])
        self._admin: AdminClient | None = None

    # ---- what is there ----

    @property
    def servers(self) -> str:
        """The addresses of all brokers, for clients."""
        return ",".join(each.bootstrap_servers for each in self.processes.values())

    @property
    def admin(self) -> AdminClient:
        """A client that asks whichever broker answers."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        return self._admin

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with three replicas, and wait until all are in sync."""
        futures = self.admin.create_topics([NewTopic(name, partitions, len(IDS))])
        futures[name].result(30)
        self.until(lambda: self.is_whole(name), 30)

    def told(self, topic: str) -> list[Told]:
        """What the brokers that answer tell of a topic that they know."""
        answers = [ask(process.port, topic) for process in self.processes.values()]
        return [each for each in answers if each is not None]

    def states(self, topic: str) -> tuple[State, ...]:
        """The partitions of a topic as whoever knows most of each tells them."""
        told = [each.states for each in self.told(topic)]
        return tuple(max(known) for known in zip(*told, strict=False))

    def controller(self, topic: str) -> int:
        """The broker that holds the office, as most of them tell; -1 while none is known."""
        told = [each.controller for each in self.told(topic)]
        return max(set(told), key=told.count, default=-1)

    def is_led(self, topic: str) -> bool:
        """Whether each partition has a leader."""
        states = self.states(topic)
        return bool(states) and all(each.leader in IDS for each in states)

    def is_whole(self, topic: str) -> bool:
        """Whether all brokers tell the same: each partition has a leader, all are in sync."""
        told = self.told(topic)
        states = {each.states for each in told}
        is_agreed = len(told) == len(IDS) and len(states) == 1
        return is_agreed and all(
            each.leader in IDS and each.in_sync == IDS for each in told[0].states
        )

    def until(self, condition: Callable[[], bool], timeout_s: float) -> float:
        """Wait for the condition; returns the seconds. Raises `TimeoutError`."""
        begun_s = time.monotonic()
        while not condition():
            if time.monotonic() > begun_s + timeout_s:
                raise TimeoutError(f"not so within {timeout_s:g} s")
            time.sleep(LOOK_AGAIN_S)
        return time.monotonic() - begun_s

    def pids(self, without: Iterable[int] = ()) -> list[int]:
        """The processes of all brokers, or of all but these."""
        return [each.pid for i, each in self.processes.items() if i not in without]

    # ---- what happens to brokers ----

    def kill(self, *broker_ids: int) -> None:
        """SIGKILL, all of them at once."""
        for broker_id in broker_ids:
            self.processes[broker_id].child.kill()
        for broker_id in broker_ids:
            self.processes[broker_id].kill()

    def start(self, *broker_ids: int) -> None:
        """Start brokers at once that are down; returns when each answers."""
        starting = [
            threading.Thread(target=self.processes[broker_id].start) for broker_id in broker_ids
        ]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()

    def stop(self, broker_id: int) -> None:
        """SIGTERM, and wait for its end in order."""
        self.processes[broker_id].stop()

    def pause(self, broker_id: int) -> None:
        """SIGSTOP."""
        self.processes[broker_id].child.send_signal(signal.SIGSTOP)

    def go_on(self, broker_id: int) -> None:
        """SIGCONT."""
        self.processes[broker_id].child.send_signal(signal.SIGCONT)

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Let nothing from each source arrive at its target; all other cuts end."""
        self._cuts.write(self._ports, pairs)

    def cut_from_store(self, broker_id: int) -> None:
        """Let nothing pass between a broker and ZooKeeper."""
        assert self._proxies is not None, "a SQLite file cannot be cut off"
        self._proxies.hold(broker_id)

    def heal(self) -> None:
        """End all cuts."""
        self.cut([])
        if self._proxies is not None:
            self._proxies.pass_on()

    def ended(self) -> list[str]:
        """The brokers whose process has ended, with its code."""
        codes = {i: each.process.poll() for i, each in self.processes.items() if each.process}
        return [f"broker {i} ended with code {c}" for i, c in codes.items() if c is not None]

    def __enter__(self) -> Self:
        self.start(*IDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.heal()
        for process in self.processes.values():
            if process.process is not None and process.process.poll() is None:
                process.process.send_signal(signal.SIGCONT)
        for process in self.processes.values():
            if process.process is not None and process.process.poll() is None:
                process.stop()
        if self._proxies is not None:
            self._proxies.close()


def isolated(broker_id: int) -> list[Pair]:
    """The pairs that cut a broker off from all other brokers."""
    others = [each for each in IDS if each != broker_id]
    return [pair for each in others for pair in ((broker_id, each), (each, broker_id))]


def from_clients(broker_id: int) -> list[Pair]:
    """The pairs that cut a broker off from its clients: nothing that they send arrives."""
    return [(CLIENTS, broker_id)]

"""A cluster of three behind the face of one system: its start, its end, and what it uses."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.cluster.rows import BROKERS_COUNT, SETTINGS
from bench.gauges import CpuTime, cpu_time, pss_mb
from bench.run import Kind
from bench.systems import NO_CLIENT_SETTINGS, Kafka
from oncelog.controller.cluster_config import replicated_defaults
from tests.support.peer.cluster import BrokerCluster
from tests.support.peer.kafka import kafka_peers


class ClusterSystem:
    """Three brokers on folders below one. `System` but for the one process."""

    client_settings = NO_CLIENT_SETTINGS

    def __init__(self, kind: Kind, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        given = {**SETTINGS, **settings}
        if kind is Kafka:
            brokers: list[Any] = [*kafka_peers(folder, BROKERS_COUNT, given, Kafka)]
        else:
            brokers = [kind(folder / str(n), settings=self._ours(n, given)) for n in _IDS]
        self.name: str = brokers[0].name
        self.cluster: BrokerCluster[Any] = BrokerCluster(brokers)

    def _ours(self, node_id: int, settings: Mapping[str, str]) -> dict[str, str]:
        file = self.folder / "metadata.sqlite"
        own = {"node.id": node_id, "oncelog.metadata.file": file}
        shared = {**replicated_defaults(BROKERS_COUNT), **own}
        return {**{key: str(value) for key, value in shared.items()}, **settings}

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def start(self) -> float:
        """Start all at once; returns the seconds until each names all."""
        return self.cluster.start()

    def cpu_time(self) -> CpuTime:
        """CPU time of all of its processes."""
        found = [cpu_time(broker.pid) for broker in self.cluster.brokers.values()]
        return CpuTime(
            sum(one.total_s for one in found),
            sum(one.user_s for one in found),
            sum(one.system_s for one in found),
        )

    def memory_mb(self) -> float:
        """Memory of all of its processes; what they share counts once."""
        return sum(pss_mb(broker.pid) for broker in self.cluster.brokers.values())

    def end(self) -> None:
        """Kill all, and remove their files: stopped in order Apache Kafka's last one waits long."""
        for broker in self.cluster.brokers.values():
            if broker.process is not None:
                broker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "ClusterSystem":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


_IDS = range(1, BROKERS_COUNT + 1)

"""The brokers of one cluster as child processes on loopback, Apache Kafka's or ours."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Self, TypeVar

from tests.support.peer.child import BrokerChild, answers_metadata

B = TypeVar("B", bound=BrokerChild)
AGREE_TIMEOUT_S = 60


class BrokerCluster(Generic[B]):
    """Brokers by id, from 1 on. A context manager that starts and stops all of them."""

    def __init__(self, brokers: Sequence[B]) -> None:
        self.brokers = dict(enumerate(brokers, 1))

    @property
    def bootstrap_servers(self) -> str:
        """The address of each broker, whether it runs or not."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def start(self) -> float:
        """Start all at once; returns the seconds until each of them names all."""
        begun = time.monotonic()
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: broker.start(), self.brokers.values()))
        self.wait_complete()
        return time.monotonic() - begun

    def wait_complete(self) -> None:
        """Return once each broker names all of them."""
        deadline = time.monotonic() + AGREE_TIMEOUT_S
        waiting = list(self.brokers.values())
        while waiting:
            waiting = [one for one in waiting if not answers_metadata(one.port, len(self.brokers))]
            if waiting and time.monotonic() > deadline:
                raise RuntimeError(f"not every broker is named on {waiting[0].bootstrap_servers}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop one after the other those that run."""
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

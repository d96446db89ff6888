"""Groups: until each of their consumers has its partitions, again after one has left, and commits.

The consumers are librdkafka's in one process, with the eager protocol of its defaults. They learn
of a rebalance by their heartbeats, so these are frequent here; the default of 3 s would be most of
the time that is measured.
"""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from bench.stats import percentiles
from bench.systems import Endpoint
from bench.work import TIMEOUT_S, Plain, Window, Work, connected_to, timed_for

HEARTBEAT_MS = 100
CLOSING_THREADS = 20
COMMITTING_S = 2.0


@dataclass(frozen=True, slots=True)
class Group:
    """So many consumers of one group, and as many partitions."""

    count: int

    def __call__(self, system: Endpoint) -> Work:
        return _Group(system, self.count)


class _Member:
    """A consumer and what it was given."""

    def __init__(self, system: Endpoint, group: str) -> None:
        self.partition_count = 0
        self.client = Consumer(
            {
                **connected_to(system),
                "group.id": group,
                "enable.auto.commit": False,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )

    def subscribe(self, topic: str) -> None:
        self.client.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        # What was assigned is taken, but not fetched: the group is measured, not reading.
        client.assign(partitions)
        client.pause(partitions)
        self.partition_count = len(partitions)

    def _revoked(self, client: Consumer, _partitions: list[TopicPartition]) -> None:
        client.unassign()
        self.partition_count = 0


class _Group(Plain):
    def __init__(self, system: Endpoint, count: int) -> None:
        super().__init__(system, count)
        self._count = count
        self._number = 0
        self._members: list[_Member] = []

    def prepare(self) -> None:
        self._number += 1
        group = f"{self.topic}-{self._number}"
        self._members = [_Member(self.system, group) for _ in range(self._count)]
        for member in self._members:
            # Connects, so that the clients' own start is not counted.
            member.client.list_topics(self.topic, timeout=TIMEOUT_S)

    def run(self) -> Window:
        begun = time.perf_counter()
        for member in self._members:
            member.subscribe(self.topic)
        self._wait_stable()
        stable = done = time.perf_counter()
        figures = {"seconds to form": stable - begun}
        if self._count > 1:
            self._members.pop().client.close()
            self._wait_stable()
            done = time.perf_counter()
            figures["seconds to rebalance"] = done - stable
        return Window(figures, 1 / (done - begun), 1)

    def _wait_stable(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for member in self._members:
                member.client.poll(0)
            held = [member.partition_count for member in self._members]
            if min(held) > 0 and sum(held) == self._count:
                return
        raise RuntimeError("the group did not become stable")

    def settle(self) -> None:
        with ThreadPoolExecutor(CLOSING_THREADS) as pool:
            list(pool.map(lambda member: member.client.close(), self._members))
        self._members = []
        # A client's callbacks refer to it, and each client that is left takes one of the 1,024
        # thread-specific keys of the process.
        gc.collect()


class Commits(Plain):
    """Commit one offset, again and again, each acknowledged before the next."""

    def __init__(self, system: Endpoint) -> None:
        super().__init__(system, 1)
        self._offset = 0
        settings = {**connected_to(system), "group.id": self.topic}
        self._client = Consumer({**settings, "enable.auto.commit": False})

    def run(self) -> Window:
        times = timed_for(self._one, COMMITTING_S)
        return Window(percentiles(times), len(times) / sum(times), len(times))

    def _one(self) -> None:
        self._offset += 1
        at = [TopicPartition(self.topic, 0, self._offset)]
        self._client.commit(offsets=at, asynchronous=False)

    def close(self) -> None:
        self._client.close()
        super().close()

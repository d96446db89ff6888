"""How long a producer waits when the leader of its partition is killed."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata

from bench.cluster.systems import ClusterSystem
from bench.loads import VALUE
from bench.stats import Figures
from bench.work import TIMEOUT_S, admin, delete_topic, fresh_topic, producer

CALM_S = 1.0
"""How long records flow before the leader is killed."""


def fail_over(system: ClusterSystem) -> Figures:
    """Kill the leader of a partition under one producer; the broker comes back afterwards."""
    topic = fresh_topic(system, 1)
    client = producer(system, **{"linger.ms": 0})
    everywhere = admin(system)
    _until(lambda: len(_partition(everywhere, topic).isrs) == len(system.cluster.brokers))
    end = time.perf_counter() + CALM_S
    while time.perf_counter() < end:
        _send(client, topic)
    leader = system.cluster.brokers[_partition(everywhere, topic).leader]
    leader.kill()
    begun = time.perf_counter()
    _send(client, topic)
    seconds = time.perf_counter() - begun
    leader.start()
    system.cluster.wait_complete()
    _until(lambda: len(_partition(everywhere, topic).isrs) == len(system.cluster.brokers))
    delete_topic(system, topic)
    return {"seconds until the next acknowledgement": seconds}


def _send(client: Producer, topic: str) -> None:
    """Produce one record and wait for its acknowledgement. Raises `RuntimeError` without one."""
    told: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        told.append(error)

    client.produce(topic, VALUE, partition=0, on_delivery=note)
    client.flush(TIMEOUT_S)
    if told != [None]:
        raise RuntimeError(f"a record was not acknowledged: {told}")


def _partition(client: AdminClient, topic: str) -> PartitionMetadata:
    """What librdkafka says of the topic's partition."""
    return client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions[0]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the replicas are not in sync again")
        time.sleep(0.05)

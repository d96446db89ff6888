"""How long producers wait when the leader or the coordinator is killed, or brokers restart."""

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata

from bench.cluster.systems import ClusterSystem
from bench.loads import VALUE, one_transaction, transactional
from bench.stats import Figures
from bench.work import PARTITIONS, TIMEOUT_S, admin, delete_topic, fresh_topic, producer
from oncelog.core.ids import TRANSACTION_STATE_TOPIC
from oncelog.protocol.hashing import coordinator_partition
from tests.support.rolling import roll

CALM_S = 1.0
"""How long records flow before a broker is killed."""


def leader_killed(system: ClusterSystem) -> Figures:
    """Kill the leader of a partition under one producer; the broker comes back afterwards."""
    topic = fresh_topic(system, 1)
    client = producer(system, **{"linger.ms": 0})
    _until_whole(system, topic)

    def send() -> None:
        _send(client, topic)

    _calm(send)
    seconds = _killed(system, _leader(admin(system), topic, 0), send)
    _until_whole(system, topic)
    delete_topic(system, topic)
    return {"seconds until the next acknowledgement": seconds}


def coordinator_killed(system: ClusterSystem) -> Figures:
    """Kill the coordinator of a transactional id; its partition is led by another broker."""
    topic = fresh_topic(system)
    client = transactional(system, topic)
    everywhere = admin(system)
    for each in (topic, TRANSACTION_STATE_TOPIC):
        _until_whole(system, each)
    count = len(_partitions(everywhere, TRANSACTION_STATE_TOPIC))
    coordinator = _leader(everywhere, TRANSACTION_STATE_TOPIC, coordinator_partition(topic, count))
    elsewhere = next(n for n in range(PARTITIONS) if _leader(everywhere, topic, n) != coordinator)

    def commit() -> None:
        one_transaction(client, topic, elsewhere)

    _calm(commit)
    seconds = _killed(system, coordinator, commit)
    for each in (topic, TRANSACTION_STATE_TOPIC):
        _until_whole(system, each)
    delete_topic(system, topic)
    return {"seconds until the next commit": seconds}


def brokers_restarted(system: ClusterSystem) -> Figures:
    """Restart each broker in order under the load of stock clients: their longest pauses.

    Beside them, how many clients told their application of an error. Raises `RuntimeError` where a
    record is not as it was sent.
    """
    folder = system.folder / f"rolling-{time.monotonic_ns()}"
    folder.mkdir()
    report = roll(system.cluster, folder)
    if report.findings:
        raise RuntimeError(f"{len(report.findings)} findings: {report.findings[:3]}")
    for topic in report.pauses_s:
        delete_topic(system, topic)
    pauses = {f"longest pause of {who}, s": seconds for who, seconds in report.pauses_s.items()}
    return {**pauses, "errors that applications got": len(report.problems)}


FAULTS: Final = {
    "leader": leader_killed,
    "coordinator": coordinator_killed,
    "restart": brokers_restarted,
}
"""What a row without a load does to warm brokers, by its fault."""


def _calm(work: Callable[[], None]) -> None:
    end = time.perf_counter() + CALM_S
    while time.perf_counter() < end:
        work()


def _killed(system: ClusterSystem, broker_id: int, work: Callable[[], None]) -> float:
    """Kill a broker, and start it again; returns the seconds until work is done after the kill."""
    victim = system.cluster.brokers[broker_id]
    victim.kill()
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    victim.start()
    system.cluster.wait_complete()
    return seconds


def _send(client: Producer, topic: str) -> None:
    """Produce one record and wait for its acknowledgement. Raises `RuntimeError` without one."""
    told: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        told.append(error)

    client.produce(topic, VALUE, partition=0, on_delivery=note)
    client.flush(TIMEOUT_S)
    if told != [None]:
        raise RuntimeError(f"a record was not acknowledged: {told}")


def _leader(client: AdminClient, topic: str, partition: int) -> int:
    return _partitions(client, topic)[partition].leader


def _partitions(client: AdminClient, topic: str) -> dict[int, PartitionMetadata]:
    """What librdkafka says of the topic's partitions."""
    return client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions


def _until_whole(system: ClusterSystem, topic: str) -> None:
    """Return once all replicas are in sync. Raises `RuntimeError`."""
    client = admin(system)
    deadline = time.monotonic() + TIMEOUT_S
    count = len(system.cluster.brokers)
    while any(len(one.isrs) < count for one in _partitions(client, topic).values()):
        if time.monotonic() > deadline:
            raise RuntimeError("the replicas are not in sync again")
        time.sleep(0.05)

"""Consumers that use fetch sessions (KIP-227), with replies that hold only some partitions."""

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.interop.confluent import create_topic, producer, wait_until

pytestmark = pytest.mark.interop

PARTITIONS = 20
RECORDS_PER_PARTITION = 50


def test_every_partition_of_a_session_comes_to_its_turn(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, PARTITIONS)
    settings = {"batch.num.messages": 5, "enable.idempotence": True}
    client = producer(bootstrap_servers, **settings)
    for number in range(RECORDS_PER_PARTITION):
        for partition in range(PARTITIONS):
            client.produce(topic, b"%d" % number, partition=partition)
    assert client.flush(20) == 0
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_bytes=1000,
        max_partition_fetch_bytes=300,
    )
    reader.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    values: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    expected = [b"%d" % number for number in range(RECORDS_PER_PARTITION)]

    def step() -> bool:
        for place, records in reader.poll(timeout_ms=200).items():
            values[place.partition] += [record.value for record in records]
        return all(len(found) >= RECORDS_PER_PARTITION for found in values.values())

    wait_until(step, "all records")
    late = RECORDS_PER_PARTITION
    client.produce(topic, b"%d" % late, partition=7)
    assert client.flush(20) == 0
    wait_until(lambda: step() and len(values[7]) > late, "a record that came later")
    reader.close()
    assert values.pop(7) == [*expected, b"%d" % late]
    assert all(found == expected for found in values.values())

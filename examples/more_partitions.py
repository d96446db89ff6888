"""What more partitions do to the order of a key, and how to add them without harm.

    python examples/more_partitions.py

A key's partition is its hash modulo the number of partitions. When that number changes the key
moves, and whoever reads the new partition does not wait for whoever reads the old one.
"""

from oncelog import EmbeddedBroker, NewTopic, TopicPartition, sync

KEY = b"ann"
BEFORE, AFTER = 2, 5


def send(producer: sync.Producer, topic: str, numbers: range) -> int:
    """Send the numbers under one key; returns the partition that they went to."""
    sent = [producer.send(topic, str(number).encode(), key=KEY) for number in numbers]
    return sent[-1].result().partition


def read(servers: str, partition: TopicPartition) -> list[int]:
    """Everything in one partition, as the group's member that owns it reads it."""
    with sync.Consumer(servers) as consumer:
        consumer.assign([partition])
        found = []
        while records := consumer.poll(timeout_ms=300):
            found += [int(record.value or b"") for record in records]
    return found


def grow_under_load(servers: str, admin: sync.Admin, producer: sync.Producer) -> None:
    admin.create_topics([NewTopic("grown", BEFORE)])
    old = send(producer, "grown", range(1, 4))
    admin.create_partitions({"grown": AFTER})
    new = send_anew(servers, "grown")
    # The member with the new partition has nothing to catch up with; the other one has.
    order = read(servers, TopicPartition("grown", new)) + read(
        servers, TopicPartition("grown", old)
    )
    print(f"grown under load: {KEY.decode()} moved from partition {old} to {new}, read as {order}")


def send_anew(servers: str, topic: str) -> int:
    """Send with a producer that has just asked how many partitions there are."""
    with sync.Producer(servers) as producer:
        return send(producer, topic, range(4, 7))


def drain_first(servers: str, admin: sync.Admin, producer: sync.Producer) -> None:
    admin.create_topics([NewTopic("drained", BEFORE)])
    old = send(producer, "drained", range(1, 4))
    # Producers stop; consumers read to the end and commit; only then do partitions come.
    order = read(servers, TopicPartition("drained", old))
    admin.create_partitions({"drained": AFTER})
    new = send_anew(servers, "drained")
    order += read(servers, TopicPartition("drained", new))
    print(f"drained first:    {KEY.decode()} moved from partition {old} to {new}, read as {order}")


def main() -> None:
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with sync.Admin(servers) as admin, sync.Producer(servers) as producer:
            grow_under_load(servers, admin, producer)
            drain_first(servers, admin, producer)


if __name__ == "__main__":
    main()

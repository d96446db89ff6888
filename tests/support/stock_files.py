"""What the `server.properties` that Apache Kafka ships set: keys and values, release by release.

Facts, not the files: their comments are Kafka's own.
"""

from typing import Final

_COMMON: Final = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.retention.check.interval.ms": "300000",
}

_KRAFT: Final = _COMMON | {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    ),
    "log.dirs": "/tmp/kraft-combined-logs",
    "log.segment.bytes": "1073741824",
}

_KRAFT_4: Final = _KRAFT | {
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "num.recovery.threads.per.data.dir": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

STOCK_FILES: Final[dict[str, dict[str, str]]] = {
    "3.9, KRaft": _KRAFT | {"controller.quorum.voters": "1@localhost:9093"},
    "3.9, KRaft with dynamic voters": _KRAFT
    | {"controller.quorum.bootstrap.servers": "localhost:9093"},
    "3.9, KRaft broker alone": {
        **_KRAFT,
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "/tmp/kraft-broker-logs",
    },
    "3.9, ZooKeeper": _COMMON
    | {
        "broker.id": "0",
        "log.dirs": "/tmp/kafka-logs",
        "zookeeper.connect": "localhost:2181",
        "zookeeper.connection.timeout.ms": "18000",
        "group.initial.rebalance.delay.ms": "0",
    },
    "4.3": _KRAFT_4,
    "4.4": _KRAFT_4,
}


def properties(release: str) -> str:
    """A `server.properties` that sets what the release's does."""
    return "".join(f"{key}={value}\n" for key, value in STOCK_FILES[release].items())

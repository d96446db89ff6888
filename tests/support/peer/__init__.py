"""Apache Kafka as a peer: its jars from Maven Central, KRaft brokers as processes, its tools.

Used by benchmarks and by interop tests. Nothing of the product depends on it: where Maven or Java
cannot be had, `jars()` raises `PeerUnavailable` with the reason, and tests skip with it.
"""

from tests.support.peer.kafka import (
    KafkaPeer,
    PeerUnavailable,
    client_jars,
    connect_jars,
    jars,
    java,
    kafka_peers,
    streams_jars,
)

__all__ = [
    "KafkaPeer",
    "PeerUnavailable",
    "client_jars",
    "connect_jars",
    "jars",
    "java",
    "kafka_peers",
    "streams_jars",
]

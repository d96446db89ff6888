"""Types of our clients' settings: by Kafka's dotted names, and as the keywords of all clients.

A type checker accepts what `table` knows, and finds a misspelled name or a wrong value. At run time
`names` checks the same, with the nearest right name. `tests/unit/client/settings/test_configs.py`
keeps these types equal to the tables.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from oncelog.client.settings.security import Security
from oncelog.runtime.clock import Clock
from oncelog.runtime.network import Network

__all__ = [
    "AdminConfig",
    "ConnectionOptions",
    "ConsumerConfig",
    "DriverConfig",
    "ProducerConfig",
]


class ConnectionOptions(TypedDict, total=False):
    """The keywords of the connection layer, which all clients have; durations are in ms."""

    client_id: str
    request_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    reconnect_backoff_ms: float
    reconnect_backoff_max_ms: float
    connection_setup_timeout_ms: float
    connection_setup_timeout_max_ms: float
    first_contact_ms: float | None
    unknown_topic_ms: float
    transaction_version_max: int
    security: Security | None
    network: Network | None
    clock: Clock | None
    rng: random.Random | None


_ConnectionConfig = TypedDict(
    "_ConnectionConfig",
    {
        "bootstrap.servers": str | Sequence[str],
        "client.id": str,
        "request.timeout.ms": int,
        "retry.backoff.ms": int,
        "retry.backoff.max.ms": int,
        "reconnect.backoff.ms": int,
        "reconnect.backoff.max.ms": int,
        "socket.connection.setup.timeout.ms": int,
        "socket.connection.setup.timeout.max.ms": int,
        "oncelog.first.contact.ms": int,
        "oncelog.unknown.topic.ms": int,
        "security.protocol": Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        "sasl.jaas.config": str,
        "sasl.mechanism": str,
        "sasl.mechanisms": str,
        "sasl.username": str,
        "sasl.password": str,
        "sasl.oauthbearer.client.credentials.client.id": str,
        "sasl.oauthbearer.client.credentials.client.secret": str,
        "sasl.oauthbearer.client.id": str,
        "sasl.oauthbearer.client.secret": str,
        "sasl.oauthbearer.extensions": str,
        "sasl.oauthbearer.method": str,
        "sasl.oauthbearer.scope": str,
        "sasl.oauthbearer.token": str,
        "sasl.oauthbearer.token.endpoint.url": str,
        "sasl.oauthbearer.token.provider": str | Callable[..., Any],
        "ssl.ca.location": str,
        "ssl.certificate.location": str,
        "ssl.cipher.suites": str,
        "ssl.enabled.protocols": str,
        "ssl.endpoint.identification.algorithm": str,
        "ssl.key.location": str,
        "ssl.key.password": str,
        "ssl.keystore.certificate.chain": str,
        "ssl.keystore.key": str,
        "ssl.keystore.location": str,
        "ssl.keystore.password": str,
        "ssl.keystore.type": Literal["PEM", "PKCS12", "JKS"],
        "ssl.truststore.certificates": str,
        "ssl.truststore.location": str,
        "ssl.truststore.password": str,
        "ssl.truststore.type": Literal["PEM", "PKCS12", "JKS"],
    },
    total=False,
)

_ProducerSettings = TypedDict(
    "_ProducerSettings",
    {
        "acks": Literal["all", "-1", "0", "1", -1, 0, 1],
        "batch.size": int,
        "buffer.memory": int,
        "compression.type": Literal["none", "gzip", "snappy", "lz4", "zstd"],
        "delivery.timeout.ms": int,
        "enable.idempotence": bool,
        "linger.ms": int,
        "max.block.ms": int,
        "max.in.flight.requests.per.connection": int,
        "partitioner.class": str | Callable[[str, bytes | None, bytes | None, int], int],
        "partitioner.ignore.keys": bool,
        "retries": int,
        "transaction.timeout.ms": int,
        "transactional.id": str,
    },
    total=False,
)

_ConsumerSettings = TypedDict(
    "_ConsumerSettings",
    {
        "auto.commit.interval.ms": int,
        "auto.offset.reset": Literal["earliest", "latest", "none"],
        "check.crcs": bool,
        "client.rack": str,
        "default.api.timeout.ms": int,
        "enable.auto.commit": bool,
        "fetch.max.bytes": int,
        "fetch.max.wait.ms": int,
        "group.id": str,
        "group.instance.id": str,
        "group.protocol": Literal["classic", "consumer", "CLASSIC", "CONSUMER"],
        "group.remote.assignor": str,
        "heartbeat.interval.ms": int,
        "isolation.level": Literal["read_committed", "read_uncommitted"],
        "max.partition.fetch.bytes": int,
        "max.poll.interval.ms": int,
        "max.poll.records": int,
        "metadata.max.age.ms": int,
        "partition.assignment.strategy": str | Sequence[Any],
        "queued.max.messages.kbytes": int,
        "session.timeout.ms": int,
    },
    total=False,
)

_AdminSettings = TypedDict("_AdminSettings", {"default.api.timeout.ms": int}, total=False)

_DriverSettings = TypedDict(
    "_DriverSettings",
    {"max.block.ms": int, "transaction.timeout.ms": int, "transactional.id": str},
    total=False,
)


class ProducerConfig(_ConnectionConfig, _ProducerSettings, total=False):
    """Settings of `Producer` by Kafka's names."""


class ConsumerConfig(_ConnectionConfig, _ConsumerSettings, total=False):
    """Settings of `Consumer` by Kafka's names."""


class AdminConfig(_ConnectionConfig, _AdminSettings, total=False):
    """Settings of `Admin` by Kafka's names."""


class DriverConfig(_ConnectionConfig, _DriverSettings, total=False):
    """Settings of `TransactionDriver` by Kafka's names."""

"""Lists the supported configs of Kafka's clients, and the keyword of each."""

from collections.abc import Callable
from enum import Enum
from typing import Final

from oncelog.core.config_definition import ConfigError

__all__ = ["BY_ROLE", "GROUP_MEMBER", "REFUSED", "WITHOUT_EFFECT", "Role"]


class Role(Enum):
    """Whose settings these are."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"
    DRIVER = "transaction driver"


Parse = Callable[[str, object], object]


def _text(name: str, value: object) -> str:
    return str(value)


def _as_it_is(name: str, value: object) -> object:
    return value


def _number(name: str, value: object) -> int:
    try:
        number = int(str(value).strip())
    except ValueError:
        number = -1
    if number < 0:
        raise ConfigError(f"{name} {value!r} must be a whole number from 0 on")
    return number


def _boolean(name: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} {value!r} must be true or false")
    return text == "true"


def _one_of(*choices: str) -> Parse:
    def parse(name: str, value: object) -> str:
        if str(value) not in choices:
            raise ConfigError(f"{name} {value!r} must be one of {', '.join(choices)}")
        return str(value)

    return parse


def _one_of_any_case(*choices: str) -> Parse:
    parse = _one_of(*choices)
    return lambda name, value: parse(name, str(value).lower())


def _list(name: str, value: object) -> object:
    """A list as a text with commas; anything else is taken as it is."""
    return [each.strip() for each in value.split(",")] if isinstance(value, str) else value


_CONNECTION: Final[dict[str, tuple[str, Parse]]] = {
    "bootstrap.servers": ("bootstrap_servers", _as_it_is),
    "client.id": ("client_id", _text),
    "request.timeout.ms": ("request_timeout_ms", _number),
    "retry.backoff.ms": ("retry_backoff_ms", _number),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _number),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _number),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _number),
    "socket.connection.setup.timeout.ms": ("connection_setup_timeout_ms", _number),
    "socket.connection.setup.timeout.max.ms": ("connection_setup_timeout_max_ms", _number),
    "oncelog.first.contact.ms": ("first_contact_ms", _number),
    "oncelog.unknown.topic.ms": ("unknown_topic_ms", _number),
}

_TRANSACTION: Final[dict[str, tuple[str, Parse]]] = {
    "transactional.id": ("transactional_id", _text),
    "transaction.timeout.ms": ("transaction_timeout_ms", _number),
}

GROUP_MEMBER: Final[dict[str, tuple[str, Parse]]] = {
    "group.protocol": ("group_protocol", _one_of_any_case("classic", "consumer")),
    "group.instance.id": ("group_instance_id", _text),
    "group.remote.assignor": ("group_remote_assignor", _text),
    "partition.assignment.strategy": ("partition_assignment_strategy", _list),
    "session.timeout.ms": ("session_timeout_ms", _number),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", _number),
    "max.poll.interval.ms": ("max_poll_interval_ms", _number),
    "max.poll.records": ("max_poll_records", _number),
    "queued.max.messages.kbytes": ("queued_max_messages_kbytes", _number),
    "enable.auto.commit": ("enable_auto_commit", _boolean),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", _number),
    "metadata.max.age.ms": ("metadata_max_age_ms", _number),
}
"""What concerns `poll` and members of groups, and no other reader."""

BY_ROLE: Final[dict[Role, dict[str, tuple[str, Parse]]]] = {
    Role.PRODUCER: {
        **_CONNECTION,
        **_TRANSACTION,
        "acks": ("acks", _one_of("all", "-1", "0", "1")),
        "linger.ms": ("linger_ms", _number),
        "batch.size": ("batch_size", _number),
        "compression.type": (
            "compression_type",
            _one_of("none", "gzip", "snappy", "lz4", "zstd"),
        ),
        "delivery.timeout.ms": ("delivery_timeout_ms", _number),
        "enable.idempotence": ("enable_idempotence", _boolean),
        "buffer.memory": ("buffer_memory", _number),
        "max.block.ms": ("max_block_ms", _number),
        "max.in.flight.requests.per.connection": (
            "max_in_flight_requests_per_connection",
            _number,
        ),
        "partitioner.class": ("partitioner", _as_it_is),
        "partitioner.ignore.keys": ("partitioner_ignore_keys", _boolean),
        "retries": ("retries", _number),
    },
    Role.CONSUMER: {
        **_CONNECTION,
        "group.id": ("group_id", _text),
        "isolation.level": ("isolation_level", _one_of("read_committed", "read_uncommitted")),
        "auto.offset.reset": ("auto_offset_reset", _one_of("earliest", "latest", "none")),
        "fetch.max.wait.ms": ("fetch_max_wait_ms", _number),
        "fetch.max.bytes": ("fetch_max_bytes", _number),
        "max.partition.fetch.bytes": ("max_partition_fetch_bytes", _number),
        "check.crcs": ("check_crcs", _boolean),
        "client.rack": ("client_rack", _text),
        "default.api.timeout.ms": ("retry_timeout_ms", _number),
        **GROUP_MEMBER,
    },
    Role.ADMIN: {**_CONNECTION, "default.api.timeout.ms": ("timeout_ms", _number)},
    Role.DRIVER: {**_CONNECTION, **_TRANSACTION, "max.block.ms": ("timeout_ms", _number)},
}
"""Kafka's name -> (keyword of the class, how its value is read).

Names that begin with ``oncelog.`` are ours, and queued.max.messages.kbytes is librdkafka's.
"""

WITHOUT_EFFECT: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "fetch.min.bytes",
        "key.deserializer",
        "key.serializer",
        "max.request.size",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "send.buffer.bytes",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.deserializer",
        "value.serializer",
    }
)
"""Configs that a copied configuration may have and that have no effect here; they are logged."""

REFUSED: Final = {
    "interceptor.classes": "classes of Java cannot be loaded",
    "sasl.client.callback.handler.class": (
        "classes of Java cannot be loaded; for a token of your own use "
        "sasl.oauthbearer.token.provider"
    ),
    "sasl.login.callback.handler.class": (
        "classes of Java cannot be loaded; for a token of your own use "
        "sasl.oauthbearer.token.provider"
    ),
    "sasl.login.class": "classes of Java cannot be loaded",
    "sasl.kerberos.service.name": "GSSAPI is not there",
    "security.providers": "classes of Java cannot be loaded",
    "ssl.engine.factory.class": "classes of Java cannot be loaded",
    "ssl.provider": "TLS is OpenSSL's",
    "enable.ssl.certificate.verification": "certificates are always verified",
    "config.providers": "give the values themselves",
    "socks5.proxy": "there are no proxies",
}
"""Settings that would change what the client does, and the reason or the way out."""

"""The keys of Apache Kafka's brokers, 3.9 to 4.4, that Oncelog does not have.

There are two kinds. A key that does not matter here (threads and buffers that a broker does not
have, quotas of replication, quorums, ZooKeeper, unsupported kinds of groups) has no effect, so that
a broker starts with a file made for Kafka. A key that changes a guarantee (who may connect, quotas,
where records are stored) is refused with the reason. `core.config` applies both.

The names come from Kafka's own definitions: `AbstractKafkaConfig` and what it merges, and for 3.9
also `ZkConfigs` and `PasswordEncoderConfigs`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EXPLAINED", "PASSED_OVER", "REFUSED", "is_harmless", "refusal"]


def _names(prefix: str, ends: str) -> tuple[str, ...]:
    return tuple(prefix + end for end in ends.split())


_GROUP_LIMITS: Final = """
    assignment.interval.ms heartbeat.interval.ms session.timeout.ms max.size
    max.assignment.interval.ms max.heartbeat.interval.ms max.session.timeout.ms
    min.assignment.interval.ms min.heartbeat.interval.ms min.session.timeout.ms
"""

PASSED_OVER: Final = (
    # Threads, buffers and purgatories: one process, one loop (D12).
    "background.threads",
    *_names("num.", "io.threads network.threads replica.alter.log.dirs.threads"),
    *_names("num.", "recovery.threads.per.data.dir"),
    "queued.max.requests",
    *_names("socket.", "listen.backlog.size receive.buffer.bytes send.buffer.bytes"),
    *_names("socket.connection.setup.", "timeout.ms timeout.max.ms"),
    *_names("delete.records.", "purgatory.purge.interval.requests"),
    *_names("fetch.", "purgatory.purge.interval.requests"),
    *_names("producer.", "purgatory.purge.interval.requests"),
    *_names("group.coordinator.", "background.threads threads append.linger.ms"),
    "group.coordinator.cached.buffer.max.bytes",
    *_names("", "offsets.load.buffer.size transaction.state.log.load.buffer.size"),
    *_names("offsets.", "topic.compression.codec commit.required.acks"),
    *_names("add.partitions.to.txn.retry.backoff.", "ms max.ms"),
    *_names("", "log.initial.task.delay.ms log.dir.failure.timeout.ms"),
    # A quorum of controllers, and how Kafka's brokers speak to it.
    *_names("controller.quorum.", "voters bootstrap.servers append.linger.ms auto.join.enable"),
    *_names("controller.quorum.", "election.backoff.max.ms election.timeout.ms fetch.max.bytes"),
    *_names("controller.quorum.", "fetch.snapshot.max.bytes fetch.timeout.ms request.timeout.ms"),
    "controller.quorum.retry.backoff.ms",
    *_names("metadata.log.", "dir max.record.bytes.between.snapshots max.snapshot.interval.ms"),
    *_names("metadata.log.", "segment.bytes segment.min.bytes segment.ms"),
    *_names("metadata.max.", "idle.interval.ms retention.bytes retention.ms"),
    *_names("", "broker.id.generation.enable reserved.broker.max.id"),
    "initial.broker.registration.timeout.ms",
    *_names("", "early.start.listeners server.max.startup.time.ms request.timeout.ms"),
    *_names("", "inter.broker.protocol.version"),
    "control.plane.listener.name",
    # TLS: OpenSSL's provider and algorithms, and the versions that ssl.enabled.protocols names.
    *_names("ssl.", "protocol provider keymanager.algorithm trustmanager.algorithm"),
    "ssl.secure.random.implementation",
    # Replicas on other brokers.
    *_names("replica.", "alter.log.dirs.io.max.bytes.per.second socket.receive.buffer.bytes"),
    *_names("replication.quota.", "window.num window.size.seconds"),
    *_names("alter.log.dirs.replication.quota.", "window.num window.size.seconds"),
    *_names("", "unclean.leader.election.interval.ms eligible.leader.replicas.enable"),
    *_names("", "follower.fetch.last.tiered.offset.enable follower.replication.throttled.rate"),
    "leader.replication.throttled.rate",
    # Formats and versions of before Kafka 3.
    *_names("log.message.", "format.version downconversion.enable"),
    # Measurements of the JVM's.
    *_names("metrics.", "num.samples recording.level sample.window.ms"),
    *_names("", "auto.include.jmx.reporter kafka.metrics.polling.interval.secs"),
    "telemetry.max.bytes",
    # Share and streams groups, which are refused by name when a client asks for one.
    *_names("share.coordinator.state.topic.", "compression.codec min.isr num.partitions"),
    *_names("share.coordinator.state.topic.", "replication.factor segment.bytes"),
    *_names("share.coordinator.", "append.linger.ms cached.buffer.max.bytes load.buffer.size"),
    *_names("share.coordinator.", "snapshot.update.records.per.snapshot threads write.timeout.ms"),
    "share.fetch.purgatory.purge.interval.requests",
    *_names("group.share.", _GROUP_LIMITS),
    *_names("group.share.", "assignors delivery.count.limit max.delivery.count.limit"),
    *_names("group.share.", "max.partition.max.record.locks max.record.lock.duration.ms"),
    *_names("group.share.", "max.share.sessions min.delivery.count.limit"),
    *_names("group.share.", "min.partition.max.record.locks min.record.lock.duration.ms"),
    *_names("group.share.", "partition.max.record.locks record.lock.duration.ms"),
    # Consumer groups: assignors and expressions have no thread of their own.
    *_names("group.consumer.", "assignor.offload.enable regex.refresh.interval.ms"),
    *_names("group.streams.", _GROUP_LIMITS),
    *_names("group.streams.", "initial.rebalance.delay.ms max.standby.replicas"),
    *_names("group.streams.", "num.standby.replicas assignors rack.aware.assignment.tags"),
    "group.streams.topology.description.plugin.class",
    *_names("errors.deadletterqueue.", "topic.name.prefix auto.create.topics.enable"),
    # ZooKeeper, and the secrets that were kept there.
    *_names("zookeeper.", "max.in.flight.requests metadata.migration.enable"),
    "zookeeper.metadata.migration.min.batch.size",
    *_names("zookeeper.ssl.", "cipher.suites protocol"),
    "zookeeper.clientCnxnSocket",
    *_names("password.encoder.", "secret old.secret cipher.algorithm iterations key.length"),
    "password.encoder.keyfactory.algorithm",
)
"""Keys without effect; the broker logs them in one line at the start."""

EXPLAINED: Final = {
    **{
        name: f"{name} has no effect: a partition waits for the answer of the transaction's "
        "coordinator, it does not ask again"
        for name in _names("add.partitions.to.txn.retry.backoff.", "ms max.ms")
    },
    "zookeeper.clientCnxnSocket": "zookeeper.clientCnxnSocket names a class of Java's client, and "
    "has no effect: zookeeper.ssl.client.enable alone decides whether ZooKeeper is reached by TLS",
}
"""Keys without effect that are logged with an explanation, because users may rely on them."""

_AUTHENTICATION: Final = "the broker has no Kerberos and no delegation tokens"
_PEM_PASSWORD: Final = "PEM has none, only a key may have one: ssl.key.password"
_REVOCATION: Final = "whether a certificate was revoked is not looked up"
_JAVA: Final = "a Java class cannot be loaded"
_TIERED: Final = "there is no tiered storage"
_RATES: Final = "this limit is not enforced; docs/limits.md names those that are"

REFUSED: Final = (
    ("ssl.keystore.password", _PEM_PASSWORD),
    ("ssl.truststore.password", _PEM_PASSWORD),
    ("ssl.engine.factory.class", _JAVA),
    ("sasl.", _AUTHENTICATION),
    ("delegation.token.", _AUTHENTICATION),
    ("principal.builder.class", _JAVA),
    ("zookeeper.ssl.truststore.password", "PEM has none"),
    ("zookeeper.ssl.crl.enable", _REVOCATION),
    ("zookeeper.ssl.ocsp.enable", _REVOCATION),
    ("client.quota.callback.class", _JAVA),
    ("quota.", "defaults of quotas are set by kafka-configs --entity-default or oncelog quotas"),
    ("create.topic.policy.class.name", _JAVA),
    ("alter.config.policy.", _JAVA),
    ("metric.reporters", _JAVA),
    ("kafka.metrics.reporters", _JAVA),
    ("security.providers", _JAVA),
    ("config.providers", "values are used unchanged, so write them out"),
    ("remote.", _TIERED),
    ("log.local.", _TIERED),
    ("log.remote.", _TIERED),
    ("max.connection.creation.rate", _RATES),
    ("max.connections.per.ip.overrides", _RATES),
    ("queued.max.request.bytes", _RATES),
    ("max.decompressed.message.bytes", _RATES),
    ("cordoned.log.dirs", "new partitions go to every log directory"),
    ("transaction.two.phase.commit.enable", "there are no two-phase commits (KIP-939)"),
    ("unstable.", "versions that are not released are not spoken"),
    (
        "log.message.timestamp.difference.max.ms",
        "Kafka 4 replaced it by log.message.timestamp.before.max.ms and "
        "log.message.timestamp.after.max.ms",
    ),
    ("confluent.", "a key of Confluent's distribution, not of Apache Kafka"),
)
"""Prefixes of refused keys, each with the reason."""

_HARMLESS: Final = {
    "alter.config.policy.class.name": "",
    "client.quota.callback.class": "",
    "config.providers": "",
    "cordoned.log.dirs": "",
    "create.topic.policy.class.name": "",
    "kafka.metrics.reporters": "",
    "log.remote.copy.lag.bytes": "-1",
    "log.remote.copy.lag.ms": "0",
    "max.connection.creation.rate": "2147483647",
    "max.connections.per.ip.overrides": "",
    "max.decompressed.message.bytes": "2147483639",
    "metric.reporters": "",
    "queued.max.request.bytes": "-1",
    "remote.log.storage.system.enable": "false",
    "transaction.two.phase.commit.enable": "false",
    "unstable.api.versions.enable": "false",
    "unstable.feature.versions.enable": "false",
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.ocsp.enable": "false",
}
"""Refused keys that are accepted with this value, because it changes nothing: the default."""


def refusal(name: str) -> str | None:
    """Return why a key of Kafka's is refused; None for a name that Kafka does not have."""
    return next((reason for start, reason in REFUSED if name.startswith(start)), None)


def is_harmless(name: str, text: str) -> bool:
    """Whether a key that is refused otherwise may have this value."""
    return _HARMLESS.get(name) == text.strip()

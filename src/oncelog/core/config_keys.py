"""The table of config keys: Kafka's names, types, defaults and units.

Kafka's definitions: `ServerLogConfigs`, `SocketServerConfigs`, `ServerConfigs`,
`ReplicationConfigs`, `CleanerConfig`, `GroupCoordinatorConfig`, `TransactionLogConfig`,
`TransactionStateManagerConfig`, `LogConfig`, and the synonyms in `ServerTopicConfigSynonyms`. The
descriptions are ours, and mention a default that differs from Kafka's.
"""

# One line per key, so that the table reads as one.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from oncelog.core.acl import parse_super_users
from oncelog.core.config_definition import (
    ConfigSupport,
    ConfigType,
    ConfigValue,
    Definition,
    Synonym,
    as_float,
    as_int,
    as_list,
    as_str,
)
from oncelog.core.kafka_keys import PASSED_OVER
from oncelog.core.limits import DOUBLE_MAX, INT32_MAX, INT64_MAX
from oncelog.core.unread_keys import UNREAD_BROKER_KEYS, UNREAD_TOPIC_KEYS

__all__ = [
    "AUTHORIZER_KEYS",
    "BROKER_KEYS",
    "LISTENER_KEYS",
    "MECHANISM_KEYS",
    "RACK_AWARE_SELECTOR",
    "STANDARD_AUTHORIZER",
    "TOPIC_KEYS",
    "UNSUPPORTED_TOPIC_KEYS",
    "only_false",
    "only_pem",
]

_BOOLEAN = ConfigType.BOOLEAN
_STRING = ConfigType.STRING
_INT = ConfigType.INT
_SHORT = ConfigType.SHORT
_PASSWORD = ConfigType.PASSWORD
_LONG = ConfigType.LONG
_DOUBLE = ConfigType.DOUBLE
_LIST = ConfigType.LIST

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_MB = 1024 * 1024
_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS


Check = Callable[[ConfigValue], str | None]


def _at_least(low: float) -> Check:
    return lambda value: None if as_float(value) >= low else f"Value must be at least {low}"


def _between(low: float, high: float) -> Check:
    return lambda value: (
        None if low <= as_float(value) <= high else f"Value must be between {low} and {high}"
    )


def _one_of(*allowed: str) -> Check:
    return lambda value: (
        None if value in allowed else f"String must be one of: {', '.join(allowed)}"
    )


def _migration_policy(value: ConfigValue) -> str | None:
    allowed = ("disabled", "upgrade", "downgrade", "bidirectional")
    return _one_of(*allowed)(as_str(value).lower())


def _each_of(*allowed: str) -> Check:
    return lambda value: (
        None
        if all(part in allowed for part in as_list(value))
        else f"each entry must be one of: {', '.join(allowed)}"
    )


def only_false(value: ConfigValue) -> str | None:
    """The check of a feature that Oncelog does not have: only false is accepted."""
    return "only false is supported" if value else None


def _gzip_level(value: ConfigValue) -> str | None:
    is_level = value == -1 or 1 <= as_int(value) <= 9
    return None if is_level else "Value must be between 1 and 9 or equal to -1"


def only_pem(value: ConfigValue) -> str | None:
    """The check of a store's type: only PEM is accepted."""
    if value == "PEM":
        return None
    convert = "openssl pkcs12 -in store.p12 -out store.pem -nodes"
    if value == "JKS":
        convert = (
            "keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 "
            f"-deststoretype PKCS12, then {convert}"
        )
    return f"only PEM is read; convert the store: {convert}"


def _authorizer(value: ConfigValue) -> str | None:
    return None if value in ("", STANDARD_AUTHORIZER) else f"only {STANDARD_AUTHORIZER} is there"


def _super_users(value: ConfigValue) -> str | None:
    try:
        parse_super_users(as_str(value))
    except ValueError as error:
        return str(error)
    return None


def _replica_selector(value: ConfigValue) -> str | None:
    return None if not value or value == RACK_AWARE_SELECTOR else f"only {RACK_AWARE_SELECTOR}"


def _load_factor(value: ConfigValue) -> str | None:
    return None if 0 < as_float(value) <= 1 else "Value must be above 0 and at most 1"


def _positive(value: ConfigValue) -> str | None:
    return None if as_float(value) > 0 else "Value must be above 0"


_CODECS = _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_POLICY = _each_of("compact", "delete")
_TIMESTAMP_TYPE = _one_of("CreateTime", "LogAppendTime")

_BROKER: Final = (
    # --- identity and addresses
    Definition("node.id", _INT, 1, "This broker's number. Kafka has no default; ours is 1.", _at_least(0)),
    Definition("broker.id", _INT, -1, "The older name of node.id."),
    Definition("broker.rack", _STRING, None, "The rack or zone of this broker."),
    Definition("listeners", _LIST, ("PLAINTEXT://127.0.0.1:9092",), "Where to listen, as NAME://HOST:PORT for each listener. Kafka's default is every interface; ours is the local one, as whoever reaches it may do everything."),
    Definition("advertised.listeners", _LIST, None, "The address for clients to connect to, by listener; port 0 is the port that was bound. A listener that is left out is told to no client."),
    Definition("listener.security.protocol.map", _LIST, None, "The protocol of each listener name, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."),
    Definition("inter.broker.listener.name", _STRING, None, "The listener by which brokers reach each other; unset: the one of security.inter.broker.protocol."),
    Definition("security.inter.broker.protocol", _STRING, None, "The protocol whose name the inter-broker listener has, instead of inter.broker.listener.name; without both it is the only listener, or PLAINTEXT.", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    Definition("controller.listener.names", _LIST, (), "Names of listeners that are a controller's, and are left out here."),
    Definition("process.roles", _LIST, ("broker",), "The roles of a KRaft server; broker must be among them.", _each_of("broker", "controller")),
    Definition("log.dir", _LIST, ("oncelog-data",), "The log directory, when log.dirs is not set. Kafka's default is in /tmp."),
    Definition("log.dirs", _LIST, None, "The log directories, separated by commas."),
    Definition("oncelog.metadata.file", _STRING, None, "The metadata's SQLite file, in a folder that exists, of this broker, or of all brokers of its machine together; unset: metadata.sqlite in the log directory that has one, else in the first. Kafka has no such key."),
    Definition("zookeeper.connect", _STRING, None, "The ZooKeeper that holds the metadata, as HOST:PORT,HOST:PORT/CHROOT; unset: a SQLite file does."),
    Definition("zookeeper.session.timeout.ms", _INT, 18_000, "A broker that ZooKeeper does not hear of for so long is dead to the others.", _at_least(1)),
    Definition("zookeeper.connection.timeout.ms", _INT, None, "How long a start waits for ZooKeeper; unset: zookeeper.session.timeout.ms.", _at_least(1)),
    Definition("zookeeper.ssl.client.enable", _BOOLEAN, False, "Whether the broker reaches ZooKeeper by TLS."),
    Definition("zookeeper.ssl.keystore.type", _STRING, "PEM", "The format of the certificate that ZooKeeper is shown, and of its key; only PEM is read.", only_pem),
    Definition("zookeeper.ssl.keystore.location", _STRING, None, "The file with both, read again for each connection; unset: none is shown."),
    Definition("zookeeper.ssl.keystore.password", _PASSWORD, None, "The password of an encrypted key."),
    Definition("zookeeper.ssl.truststore.type", _STRING, "PEM", "The format of the trusted certificates; only PEM is read.", only_pem),
    Definition("zookeeper.ssl.truststore.location", _STRING, None, "The file of the authorities that sign ZooKeeper's certificates, read again as well; unset: the system's."),
    Definition("zookeeper.ssl.endpoint.identification.algorithm", _STRING, "HTTPS", "Whether the certificate has to name the host that zookeeper.connect names; empty: it has not.", lambda value: None if as_str(value).upper() in ("HTTPS", "") else "String must be one of: HTTPS, or empty"),
    Definition("zookeeper.ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "The versions of TLS that are spoken to ZooKeeper.", _each_of("TLSv1.2", "TLSv1.3")),
    Definition("zookeeper.set.acl", _BOOLEAN, False, "Whether nodes in ZooKeeper are for the brokers alone, and so made when the broker starts."),
    Definition("oncelog.zookeeper.digest", _PASSWORD, None, "Who all brokers are to ZooKeeper, as USER:PASSWORD; Kafka has a JAAS file for it."),
    # --- connections
    Definition("quota.window.num", _INT, 11, "How many windows the rates of client quotas are measured over.", _at_least(1)),
    Definition("quota.window.size.seconds", _INT, 1, "Length of such a window.", _at_least(1)),
    Definition("controller.quota.window.num", _INT, 11, "The same for controller_mutation_rate: so many windows' worth of partitions may be made or deleted at once.", _at_least(1)),
    Definition("controller.quota.window.size.seconds", _INT, 1, "Length of such a window.", _at_least(1)),
    Definition("socket.request.max.bytes", _INT, 100 * _MB, "Largest request frame in bytes; a larger one closes the connection.", _at_least(1)),
    Definition("connections.max.idle.ms", _LONG, 10 * _MINUTE_MS, "A connection on which nothing happens for so long is closed; negative: never."),
    Definition("max.connections", _INT, INT32_MAX, "Connections open at a time; with listener.name.NAME. in front: those of one listener.", _at_least(0)),
    Definition("max.connections.per.ip", _INT, INT32_MAX, "Connections open at a time from one address.", _at_least(0)),
    Definition("oncelog.metrics.address", _STRING, None, "Where Prometheus reads metrics, and supervisors `/livez` and `/readyz`, as HOST:PORT; unset: nowhere. Kafka has no such key: its metrics go through JMX."),
    # --- TLS
    Definition("ssl.keystore.type", _STRING, "PEM", "The format of the certificate and its key. Kafka's default is JKS; only PEM is read.", only_pem),
    Definition("ssl.keystore.location", _STRING, None, "The file with the key, the certificate and those between it and its authority. It is looked at every 5 s, and a new one is taken for new connections."),
    Definition("ssl.keystore.key", _PASSWORD, None, "The key as PEM, instead of the file."),
    Definition("ssl.keystore.certificate.chain", _PASSWORD, None, "The certificate, and those between it and its authority, as PEM, instead of the file."),
    Definition("ssl.key.password", _PASSWORD, None, "The password of an encrypted key."),
    Definition("ssl.truststore.type", _STRING, "PEM", "The format of the trusted certificates. Kafka's default is JKS; only PEM is read.", only_pem),
    Definition("ssl.truststore.location", _STRING, None, "The file of the authorities that sign clients' certificates, looked at every 5 s as well; unset: the system's."),
    Definition("ssl.truststore.certificates", _PASSWORD, None, "Their certificates as PEM, instead of the file."),
    Definition("ssl.client.auth", _STRING, "none", "Whether clients show a certificate: none, requested (they may), required. For a listener with SASL only as a key of that listener.", _one_of("required", "requested", "none")),
    Definition("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "The versions of TLS that are spoken; older ones are broken.", _each_of("TLSv1.2", "TLSv1.3")),
    Definition("ssl.cipher.suites", _LIST, (), "The cipher suites, by Java's or OpenSSL's names; suites of TLS 1.3 are taken all or none; empty: OpenSSL's choice."),
    Definition("ssl.principal.mapping.rules", _STRING, "DEFAULT", "How a user's name is made of the name in a client's certificate: DEFAULT or RULE:pattern/replacement/[LU], separated by commas; the first that matches."),
    Definition("ssl.endpoint.identification.algorithm", _STRING, "https", "Whether a broker checks that the certificate of another broker names the host that it connects to; empty: it does not.", lambda value: None if value in ("https", "") else "String must be one of: https, or empty"),
    Definition("ssl.allow.dn.changes", _BOOLEAN, False, "Whether a new certificate may have another distinguished name than the one before."),
    Definition("ssl.allow.san.changes", _BOOLEAN, False, "Whether a new certificate may lack alternative names that the one before has."),
    # --- authentication
    Definition("sasl.enabled.mechanisms", _LIST, (), "Mechanisms of listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default is GSSAPI, which we do not have."),
    Definition("sasl.mechanism.inter.broker.protocol", _STRING, None, "The mechanism by which brokers log in at each other, where the inter-broker listener has SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; Kafka's default is GSSAPI."),
    Definition("sasl.server.max.receive.size", _INT, 512 * 1024, "Largest message of an authentication in bytes; before the mechanism is chosen it is 64 KB."),
    Definition("connections.max.reauth.ms", _LONG, 0, "Time after which a client has to authenticate again (KIP-368); 0: never, unless its token ends.", _at_least(0)),
    Definition("connection.failed.authentication.delay.ms", _INT, 100, "Time before a failed authentication is answered and its connection closed.", _at_least(0)),
    Definition("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, "The JWKS file whose keys sign tokens, as file:///path. It is read again when it changes."),
    Definition("sasl.oauthbearer.expected.audience", _LIST, None, "Audiences of which a token has to name one."),
    Definition("sasl.oauthbearer.expected.issuer", _STRING, None, "The issuer that a token has to name."),
    Definition("sasl.oauthbearer.allow.unverified.audience", _BOOLEAN, False, "Whether signed tokens for anybody are taken where sasl.oauthbearer.expected.audience is not set; else it has to be."),
    Definition("sasl.oauthbearer.allow.unverified.issuer", _BOOLEAN, False, "Whether signed tokens of any issuer are taken where sasl.oauthbearer.expected.issuer is not set; else it has to be."),
    Definition("sasl.oauthbearer.clock.skew.seconds", _INT, 30, "Difference of clocks that is allowed for a token's times.", _at_least(0)),
    Definition("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "The claim of a token that is the user's name."),
    # --- topics
    Definition("auto.create.topics.enable", _BOOLEAN, True, "Whether a topic that a producer or consumer names comes into being."),
    Definition("delete.topic.enable", _BOOLEAN, True, "Whether topics can be deleted."),
    Definition("num.partitions", _INT, 1, "Partitions of a topic that does not say how many.", _at_least(1)),
    Definition("default.replication.factor", _INT, 1, "Replicas of a topic that does not say how many.", _at_least(1)),
    Definition("min.insync.replicas", _INT, 1, "In-sync replicas that an acks=all write needs; where a topic has fewer replicas, all of them.", _at_least(1)),
    Definition("unclean.leader.election.enable", _BOOLEAN, False, "Whether a replica outside the ISR may lead when no other is left, at the price of acknowledged records."),
    Definition("max.request.partition.size.limit", _INT, 2000, "Partitions that one answer of DescribeTopicPartitions may hold.", _at_least(1)),
    # --- logs
    Definition("message.max.bytes", _INT, _MB + 12, "Largest record batch in bytes, as compressed by the producer.", _at_least(0)),
    Definition("fetch.max.bytes", _INT, 55 * _MB, "Most bytes that one fetch returns; a first batch larger than that still is.", _at_least(1024)),
    Definition("max.incremental.fetch.session.cache.slots", _INT, 1000, "Fetch sessions (KIP-227) that are remembered at a time.", _at_least(0)),
    Definition("compression.type", _STRING, "producer", "Codec of stored batches; producer: as they came.", _CODECS),
    Definition("compression.gzip.level", _INT, -1, "Level where the broker compresses with gzip; -1: the library's default.", _gzip_level),
    Definition("compression.lz4.level", _INT, 9, "Level where the broker compresses with lz4.", _between(1, 17)),
    Definition("compression.zstd.level", _INT, 3, "Level where the broker compresses with zstd.", _between(-131072, 22)),
    Definition("log.segment.bytes", _INT, 1024 * _MB, "Size at which a segment is closed and a new one begun.", _at_least(_MB)),
    Definition("log.roll.ms", _LONG, None, "Age at which a segment is closed, in ms; log.roll.hours if unset."),
    Definition("log.roll.hours", _INT, 168, "Age at which a segment is closed, in hours.", _at_least(1)),
    Definition("log.roll.jitter.ms", _LONG, None, "Largest random part taken off that age, in ms."),
    Definition("log.roll.jitter.hours", _INT, 0, "Largest random part taken off that age, in hours.", _at_least(0)),
    Definition("log.retention.ms", _LONG, None, "Age at which a closed segment is deleted, in ms; log.retention.minutes if unset."),
    Definition("log.retention.minutes", _INT, None, "Age at which a closed segment is deleted, in minutes; log.retention.hours if unset."),
    Definition("log.retention.hours", _INT, 168, "Age at which a closed segment is deleted, in hours."),
    Definition("log.retention.bytes", _LONG, -1, "Size that a partition's log may have before old segments go; -1: any."),
    Definition("log.retention.check.interval.ms", _LONG, 5 * _MINUTE_MS, "Pause between two looks for segments to delete.", _at_least(1)),
    Definition("log.cleanup.policy", _LIST, ("delete",), "What happens to old segments: delete, compact, or both; empty: they are retained forever.", _POLICY),
    Definition("log.cleaner.enable", _BOOLEAN, True, "Whether compacted topics are compacted. Without it the internal topics grow forever."),
    Definition("log.cleaner.threads", _INT, 1, "Logs that are compacted at a time.", _at_least(0)),
    Definition("log.cleaner.backoff.ms", _LONG, 15_000, "Pause before the next look for a log to compact, when none is due.", _at_least(0)),
    Definition("log.cleaner.dedupe.buffer.size", _LONG, 128 * _MB, "Memory in bytes for the keys of all compactions at a time; a key takes 24."),
    Definition("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, "How full that memory may get; fuller means more keys and slower look-ups.", _load_factor),
    Definition("log.cleaner.io.buffer.size", _INT, 512 * 1024, "Bytes that all compactions at a time read and write at once.", _at_least(0)),
    Definition("log.cleaner.io.max.bytes.per.second", _DOUBLE, DOUBLE_MAX, "Bytes that compaction reads and writes per second, on average.", _positive),
    Definition("log.cleaner.delete.retention.ms", _LONG, _DAY_MS, "How long compaction keeps tombstones.", _at_least(0)),
    Definition("log.cleaner.min.compaction.lag.ms", _LONG, 0, "Age that a record has before compaction may take it.", _at_least(0)),
    Definition("log.cleaner.max.compaction.lag.ms", _LONG, INT64_MAX, "Age at which a record has to be compacted.", _at_least(1)),
    Definition("log.cleaner.min.cleanable.ratio", _DOUBLE, 0.5, "Share of uncleaned bytes at which compaction begins.", _between(0, 1)),
    Definition("log.index.size.max.bytes", _INT, 10 * _MB, "Largest offset or time index in bytes.", _at_least(4)),
    Definition("log.index.interval.bytes", _INT, 4096, "Bytes of log between two index entries.", _at_least(0)),
    Definition("log.flush.interval.messages", _LONG, INT64_MAX, "Records after which the log is synced to the disk.", _at_least(1)),
    Definition("log.flush.interval.ms", _LONG, None, "Age of an unsynced record at which the log is synced."),
    Definition("log.flush.scheduler.interval.ms", _LONG, INT64_MAX, "Pause between two looks for logs to sync."),
    Definition("log.flush.offset.checkpoint.interval.ms", _INT, _MINUTE_MS, "Pause between two recovery point checkpoints.", _at_least(0)),
    Definition("log.flush.start.offset.checkpoint.interval.ms", _INT, _MINUTE_MS, "Pause between two checkpoints of log start offsets.", _at_least(0)),
    Definition("log.segment.delete.delay.ms", _LONG, _MINUTE_MS, "Time between a segment's end and the removal of its files.", _at_least(0)),
    Definition("log.message.timestamp.type", _STRING, "CreateTime", "Whose time a record carries: its producer's or the log's.", _TIMESTAMP_TYPE),
    Definition("log.message.timestamp.before.max.ms", _LONG, INT64_MAX, "How far a record's time may lie in the past.", _at_least(0)),
    Definition("log.message.timestamp.after.max.ms", _LONG, _HOUR_MS, "How far a record's time may lie in the future.", _at_least(0)),
    Definition("log.preallocate", _BOOLEAN, False, "Whether a new segment's file gets its full size at once; only false is supported.", only_false),
    Definition("replica.high.watermark.checkpoint.interval.ms", _LONG, 5000, "Pause between two checkpoints of high watermarks."),
    # --- replicas on other brokers
    Definition("replica.lag.time.max.ms", _LONG, 30_000, "A follower that did not catch up for so long leaves the ISR."),
    Definition("num.replica.fetchers", _INT, 1, "Connections by which a follower fetches from each leader's broker."),
    Definition("replica.fetch.min.bytes", _INT, 1, "Bytes for which a follower's fetch waits."),
    Definition("replica.fetch.wait.max.ms", _INT, 500, "How long a follower's fetch waits for them; at most replica.lag.time.max.ms."),
    Definition("replica.fetch.max.bytes", _INT, _MB, "Bytes that a follower asks of one partition; a first batch larger than that still comes.", _at_least(0)),
    Definition("replica.fetch.response.max.bytes", _INT, 10 * _MB, "Bytes that a follower asks in one fetch; a first batch larger than that still comes.", _at_least(0)),
    Definition("replica.fetch.backoff.ms", _INT, 1000, "Pause before a follower asks again for a partition that answered with an error.", _at_least(0)),
    Definition("replica.socket.timeout.ms", _INT, 30_000, "How long a follower waits for the answer to a fetch; at least replica.fetch.wait.max.ms."),
    Definition("replica.selector.class", _STRING, None, "Whether consumers are sent to the nearest replica (KIP-392): only Kafka's RackAwareReplicaSelector; unset: they read from the leader.", _replica_selector),
    Definition("auto.leader.rebalance.enable", _BOOLEAN, True, "Whether the controller brings leaderships back to the preferred replicas."),
    Definition("leader.imbalance.check.interval.seconds", _LONG, 300, "Pause between two looks of the controller for leaderships to bring back.", _at_least(1)),
    Definition("leader.imbalance.per.broker.percentage", _INT, 10, "Share in percent of a broker's preferred leaderships that others may have before they are brought back."),
    Definition("controlled.shutdown.enable", _BOOLEAN, True, "Whether a broker that stops has its leaderships moved first."),
    Definition("controlled.shutdown.max.retries", _INT, 3, "How often a broker that stops asks for that again while it leads partitions that another could lead."),
    Definition("controlled.shutdown.retry.backoff.ms", _LONG, 5000, "Pause before it asks again. Where no controller answers, it stops after as many such pauses as there are retries, 20 s at most."),
    Definition("controller.socket.timeout.ms", _INT, 30_000, "How long a broker waits for the controller's answer to what only the controller can decide."),
    Definition("broker.session.timeout.ms", _INT, 9000, "Time without a sign of life after which a broker's session ends, where the store leaves that to the brokers."),
    Definition("broker.heartbeat.interval.ms", _INT, 2000, "Pause between two signs of life."),
    # --- producers and transactions
    Definition("producer.id.expiration.ms", _INT, _DAY_MS, "Idle time after which a partition forgets a producer.", _at_least(1)),
    Definition("producer.id.expiration.check.interval.ms", _INT, 10 * _MINUTE_MS, "Pause between two looks for producers to forget.", _at_least(1)),
    Definition("transaction.version", _SHORT, None, "Level of the feature transaction.version: 0 and 1 keep clients to the older protocol (TV1), 2 offers that of KIP-890. Set, it is finalized at each start; unset, the level stays as UpdateFeatures left it, 2 in a new cluster. Kafka sets it with its storage tool.", _between(0, 2)),
    Definition("transactional.id.expiration.ms", _INT, 7 * _DAY_MS, "Idle time after which a transactional id is forgotten.", _at_least(1)),
    Definition("transaction.max.timeout.ms", _INT, 15 * _MINUTE_MS, "Longest transaction timeout that a producer may ask for.", _at_least(1)),
    Definition("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000, "Pause before an abort by timeout that failed is tried again, and after a load before the first: a transaction is aborted when its timeout is over.", _at_least(1)),
    Definition("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, _HOUR_MS, "Pause between two looks for transactional ids to forget.", _at_least(1)),
    Definition("transaction.partition.verification.enable", _BOOLEAN, True, "Whether a partition asks the coordinator before the first records of a transaction of the older protocol (TV1). Without it a late write can leave a transaction open for ever. Offsets, and the newer protocol, are asked for always."),
    Definition("transaction.state.log.num.partitions", _INT, 50, "Partitions of __transaction_state; fixed once it exists.", _at_least(1)),
    Definition("transaction.state.log.replication.factor", _SHORT, 3, "Replicas of __transaction_state; 1 on a lone broker.", _at_least(1)),
    Definition("transaction.state.log.min.isr", _INT, 2, "In-sync replicas that a write to it needs; 1 on a lone broker.", _at_least(1)),
    Definition("transaction.state.log.segment.bytes", _INT, 100 * _MB, "Segment size of __transaction_state.", _at_least(1)),
    # --- groups
    Definition("group.min.session.timeout.ms", _INT, 6000, "Shortest session timeout that a member may ask for."),
    Definition("group.max.session.timeout.ms", _INT, 30 * _MINUTE_MS, "Longest session timeout that a member may ask for."),
    Definition("group.initial.rebalance.delay.ms", _INT, 3000, "Time that an empty group waits for more members before its first rebalance."),
    Definition("group.max.size", _INT, INT32_MAX, "Members that a group may have.", _at_least(1)),
    Definition("group.coordinator.rebalance.protocols", _LIST, ("classic", "consumer"), "The group protocols that are spoken; Kafka's default names streams as well, which we do not speak.", _each_of("classic", "consumer")),
    Definition("group.consumer.session.timeout.ms", _INT, 45_000, "Time without a heartbeat after which a member of a consumer group is taken out.", _at_least(1)),
    Definition("group.consumer.min.session.timeout.ms", _INT, 45_000, "Shortest value that group.consumer.session.timeout.ms may have.", _at_least(1)),
    Definition("group.consumer.max.session.timeout.ms", _INT, 60_000, "Longest value that group.consumer.session.timeout.ms may have.", _at_least(1)),
    Definition("group.consumer.heartbeat.interval.ms", _INT, 5000, "The heartbeat interval that members of consumer groups have to use.", _at_least(1)),
    Definition("group.consumer.min.heartbeat.interval.ms", _INT, 5000, "Shortest value that group.consumer.heartbeat.interval.ms may have.", _at_least(1)),
    Definition("group.consumer.max.heartbeat.interval.ms", _INT, 15_000, "Longest value that group.consumer.heartbeat.interval.ms may have.", _at_least(1)),
    Definition("group.consumer.assignment.interval.ms", _INT, 1000, "Time between two target assignments of a consumer group: members that join within it share one.", _at_least(0)),
    Definition("group.consumer.min.assignment.interval.ms", _INT, 0, "Shortest value that group.consumer.assignment.interval.ms may have.", _at_least(0)),
    Definition("group.consumer.max.assignment.interval.ms", _INT, 15_000, "Longest value that group.consumer.assignment.interval.ms may have.", _at_least(0)),
    Definition("group.consumer.migration.policy", _STRING, "bidirectional", "Which groups may change their protocol while they have members: to the new one (upgrade), from it (downgrade), both (bidirectional) or none (disabled); in any case of letters.", _migration_policy),
    Definition("group.consumer.max.size", _INT, INT32_MAX, "Members that a consumer group may have.", _at_least(1)),
    Definition("group.consumer.assignors", _LIST, ("uniform", "range"), "Assignors that members may ask for; the first is the default.", _each_of("uniform", "range")),
    Definition("offset.metadata.max.bytes", _INT, 4096, "Largest metadata text of an offset commit, in bytes."),
    Definition("offsets.commit.timeout.ms", _INT, 5000, "Time that a write of the group coordinator, such as an offset commit, may wait to be committed: for a sync that hangs, or for replicas. Then its request is answered COORDINATOR_NOT_AVAILABLE, which clients repeat; the write may be committed yet.", _at_least(1)),
    Definition("offsets.retention.minutes", _INT, 7 * 24 * 60, "Time after which an empty group's offsets are forgotten.", _at_least(1)),
    Definition("offsets.retention.check.interval.ms", _LONG, 10 * _MINUTE_MS, "Pause between two looks for offsets to forget.", _at_least(1)),
    Definition("offsets.topic.num.partitions", _INT, 50, "Partitions of __consumer_offsets; fixed once it exists.", _at_least(1)),
    Definition("offsets.topic.replication.factor", _SHORT, 3, "Replicas of __consumer_offsets; 1 on a lone broker.", _at_least(1)),
    Definition("offsets.topic.segment.bytes", _INT, 100 * _MB, "Segment size of __consumer_offsets.", _at_least(1)),
)  # fmt: skip


def _passed_over_type(name: str) -> ConfigType:
    # DescribeConfigs returns the configured text, but no secret.
    return ConfigType.PASSWORD if name.endswith((".password", ".secret")) else _STRING


LISTENER_KEYS: Final = frozenset(
    {
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "max.connections",
        "ssl.protocol",
        *(each.name for each in _BROKER if each.name.startswith(("sasl.", "ssl."))),
    }
    - {"sasl.mechanism.inter.broker.protocol"}
)
"""Keys that one listener may have a value of its own for, as ``listener.name.<name>.<key>``."""

MECHANISM_KEYS: Final[dict[str, Definition]] = {
    definition.name: definition
    for definition in (
        Definition("connections.max.reauth.ms", _LONG, None, "As the broker's key.", _at_least(0)),
        Definition(
            "sasl.jaas.config",
            ConfigType.PASSWORD,
            None,
            "The users of PLAIN, and who this broker is to the others.",
        ),
        Definition("sasl.server.callback.handler.class", _STRING, None, "Who judges tokens."),
    )
}
"""Keys of one mechanism, as ``listener.name.<name>.<mechanism>.<key>``."""

AUTHORIZER_KEYS: Final = {
    each.name: each
    for each in (
        Definition(
            "authorizer.class.name",
            _STRING,
            "",
            f"{STANDARD_AUTHORIZER} has requests checked by ACLs; empty: every client may do everything. No other class can be loaded.",
            _authorizer,
        ),
        Definition(
            "super.users",
            _STRING,
            "",
            "Principals that may do everything, with semicolons between them (User:admin;User:CN=ops,O=us). Name the users of the brokers here.",
            _super_users,
        ),
        Definition(
            "allow.everyone.if.no.acl.found",
            _BOOLEAN,
            False,
            "Whether everyone may do everything to a resource that no ACL is about.",
        ),
    )
}
"""The keys of who may do what."""

BROKER_KEYS: Final[dict[str, Definition]] = {
    **{
        definition.name: (
            replace(definition, support=ConfigSupport.NOT_YET)
            if definition.name in UNREAD_BROKER_KEYS
            else definition
        )
        for definition in _BROKER
    },
    **AUTHORIZER_KEYS,
    **{
        name: Definition(
            name, _passed_over_type(name), None, "Has no effect.", support=ConfigSupport.NO_EFFECT
        )
        for name in PASSED_OVER
    },
}


def _topic(
    name: str,
    *broker_keys: str | Synonym,
    check: Check | None = None,
    doc: str | None = None,
) -> tuple[Definition, tuple[Synonym, ...]]:
    synonyms = tuple(Synonym(key) if isinstance(key, str) else key for key in broker_keys)
    last = BROKER_KEYS[synonyms[-1].broker_key]
    first = BROKER_KEYS[synonyms[0].broker_key]
    default = last.default
    if synonyms[-1].factor != 1:
        default = as_int(default) * synonyms[-1].factor
    support = ConfigSupport.NOT_YET if name in UNREAD_TOPIC_KEYS else ConfigSupport.YES
    return (
        Definition(name, first.type, default, doc or last.doc, check or first.check, support),
        synonyms,
    )


_TOPIC: Final = (
    _topic("cleanup.policy", "log.cleanup.policy"),
    _topic("compression.type", "compression.type"),
    _topic("compression.gzip.level", "compression.gzip.level"),
    _topic("compression.lz4.level", "compression.lz4.level"),
    _topic("compression.zstd.level", "compression.zstd.level"),
    _topic("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _topic("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _topic("flush.messages", "log.flush.interval.messages"),
    _topic(
        "flush.ms",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        check=_at_least(0),
        doc="Age of an unsynced record at which the log is synced, in ms.",
    ),
    _topic("index.interval.bytes", "log.index.interval.bytes"),
    _topic("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _topic("max.message.bytes", "message.max.bytes"),
    _topic("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _topic("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _topic("message.timestamp.type", "log.message.timestamp.type"),
    _topic("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _topic("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _topic("min.insync.replicas", "min.insync.replicas"),
    _topic("preallocate", "log.preallocate"),
    _topic("retention.bytes", "log.retention.bytes"),
    _topic(
        "retention.ms",
        "log.retention.ms",
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
        check=_at_least(-1),
        doc="Age at which a closed segment is deleted, in ms; -1: never.",
    ),
    _topic("segment.bytes", "log.segment.bytes"),
    _topic("segment.index.bytes", "log.index.size.max.bytes"),
    _topic(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", _HOUR_MS),
        check=_at_least(0),
        doc="Largest random part taken off segment.ms, in ms.",
    ),
    _topic(
        "segment.ms",
        "log.roll.ms",
        Synonym("log.roll.hours", _HOUR_MS),
        check=_at_least(1),
        doc="Age at which a segment is closed, in ms.",
    ),
    _topic("unclean.leader.election.enable", "unclean.leader.election.enable"),
)

TOPIC_KEYS: Final[dict[str, tuple[Definition, tuple[Synonym, ...]]]] = {
    entry[0].name: entry for entry in _TOPIC
}
"""Topic keys, each with the broker keys whose values are its default, best first."""

UNSUPPORTED_TOPIC_KEYS: Final = frozenset(
    [
        "remote.storage.enable",
        "local.retention.ms",
        "local.retention.bytes",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.copy.lag.ms",
        "remote.copy.lag.bytes",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "errors.deadletterqueue.group.enable",
        "max.decompressed.message.bytes",
        "message.format.version",
        "message.downconversion.enable",
    ]
)
"""Kafka's topic keys that are refused when a topic is created."""

"""How other Kafka clients spell what ours have: a sentence each, which ends with our word.

Known are confluent-kafka (librdkafka's settings), aiokafka, kafka-python and Java's client.
"""

from typing import Final

from oncelog.client.settings.table import Role

__all__ = ["METHODS", "SETTINGS"]

_BYTES: Final = "keys and values are bytes here; {} them yourself"
_ENCODE: Final = _BYTES.format("encode") + ": send(topic, value, key=key)"
_DECODE: Final = _BYTES.format("decode") + ": record.key and record.value of what poll returns"
_FUTURE: Final = "the future that send returns says how a record fared"
_NEVER: Final = "there is nothing of the kind; leave it out"
_LISTENER: Final = "subscribe(topics, listener=...) takes a RebalanceListener"
_SASL: Final = "TLS and SASL have Kafka's names: {}"

SETTINGS: Final[dict[str, str]] = {
    # librdkafka
    "metadata.broker.list": "use bootstrap.servers, or the first argument",
    "queue.buffering.max.ms": "use linger.ms",
    "queue.buffering.max.messages": "use buffer.memory, which is in bytes",
    "queue.buffering.max.kbytes": "use buffer.memory, which is in bytes",
    "batch.num.messages": "use batch.size, which is in bytes",
    "compression.codec": "use compression.type",
    "message.timeout.ms": "use delivery.timeout.ms",
    "message.send.max.retries": "use retries",
    "request.required.acks": "use acks",
    "max.in.flight": "use max.in.flight.requests.per.connection",
    "partitioner": "use partitioner.class",
    "socket.timeout.ms": "use request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "use metadata.max.age.ms",
    "fetch.wait.max.ms": "use fetch.max.wait.ms",
    "fetch.message.max.bytes": "use max.partition.fetch.bytes",
    "queued.min.messages": "use queued.max.messages.kbytes; only poll fetches",
    "message.max.bytes": "use batch.size; a topic's own limit is max.message.bytes",
    "receive.message.max.bytes": "use fetch.max.bytes",
    "enable.auto.offset.store": "use enable.auto.commit=false and commit(offsets)",
    "auto.commit.enable": "use enable.auto.commit",
    "enable.partition.eof": "poll returns an empty list at the end of a partition",
    "statistics.interval.ms": _NEVER,
    "log_level": "use the logger oncelog.client of Python's logging",
    "debug": "use the logger oncelog.client of Python's logging",
    "logger": "use the logger oncelog.client of Python's logging",
    "error_cb": "errors are raised by the calls that they concern",
    "stats_cb": _NEVER,
    "throttle_cb": _NEVER,
    "oauth_cb": "use sasl.oauthbearer.token.provider",
    "on_delivery": _FUTURE,
    "delivery.report.only.error": _FUTURE,
    "dr_cb": _FUTURE,
    "on_commit": "await commit(offsets) says how a commit fared",
    # aiokafka and kafka-python
    "value_serializer": _ENCODE,
    "key_serializer": _ENCODE,
    "value_deserializer": _DECODE,
    "key_deserializer": _DECODE,
    "topics": "give topics to subscribe([...])",
    "loop": "the running loop is used; leave it out",
    "api_version": "versions are agreed with the broker; leave it out",
    "api_version_auto_timeout_ms": "versions are agreed with the broker; leave it out",
    "max_batch_size": "use batch_size",
    "max_request_size": "use batch_size; a topic's own limit is max.message.bytes",
    "rebalance_timeout_ms": "use max_poll_interval_ms",
    "consumer_timeout_ms": "use poll(timeout_ms=...), which returns an empty list after it",
    "exclude_internal_topics": "a pattern never matches internal topics; leave it out",
    "metadata_broker_list": "use bootstrap_servers",
    "security_protocol": _SASL.format('{"security.protocol": ...}'),
    "sasl_mechanism": _SASL.format('{"sasl.mechanism": ...}'),
    "sasl_plain_username": _SASL.format('{"sasl.username": ...}'),
    "sasl_plain_password": _SASL.format('{"sasl.password": ...}'),
    "sasl_oauth_token_provider": _SASL.format('{"sasl.oauthbearer.token.provider": ...}'),
    "sasl_kerberos_service_name": "GSSAPI is not there",
    "sasl_kerberos_domain_name": "GSSAPI is not there",
    "ssl_context": _SASL.format('{"security.protocol": "SSL", "ssl.ca.location": ...}'),
    "ssl_cafile": _SASL.format('{"ssl.ca.location": ...}'),
    "ssl_certfile": _SASL.format('{"ssl.certificate.location": ...}'),
    "ssl_keyfile": _SASL.format('{"ssl.key.location": ...}'),
    "ssl_password": _SASL.format('{"ssl.key.password": ...}'),
    "ssl_check_hostname": _SASL.format('{"ssl.endpoint.identification.algorithm": ...}'),
    "timeout": "durations are in milliseconds: timeout_ms",
    "servers": "use bootstrap_servers, or the first argument",
    "brokers": "use bootstrap_servers, or the first argument",
    "bootstrap_server": "use bootstrap_servers, or the first argument",
}
"""Settings of other clients: what to use, or why there is none."""

_TOPICS: Final = "topics are the business of Admin: {}"
_OFFSETS: Final = "use Admin.list_offsets({{partition: {}}})"

METHODS: Final[dict[Role, dict[str, str]]] = {
    Role.PRODUCER: {
        "produce": "use send(topic, value, key=key)",
        "send_and_wait": "use send and wait for the future that it returns",
        "send_and_wait_batch": "use send_batch and wait for the future that it returns",
        "poll": "there is nothing to poll; " + _FUTURE,
        "purge": "use close, after which what is queued fails",
        "create_batch": "records are batched as batch_size and linger_ms say; use send",
        "transaction": "use begin_transaction, then commit_transaction or abort_transaction",
        "partitions_for": _TOPICS.format("use describe_topic(name)"),
        "partitions_for_topic": _TOPICS.format("use describe_topic(name)"),
        "list_topics": _TOPICS.format("use list_topics()"),
    },
    Role.CONSUMER: {
        "getone": "use poll(max_records=1), which returns a list",
        "getmany": "use poll(timeout_ms, max_records), which returns a list",
        "consume": "use poll(timeout_ms, max_records), which returns a list",
        "store_offsets": "use commit(offsets)",
        "commit_sync": "use commit(offsets)",
        "commit_async": "use commit(offsets)",
        "consumer_group_metadata": "use group_metadata()",
        "memberid": "use group_metadata().member_id",
        "incremental_assign": "use assign(partitions) with those that are read already",
        "incremental_unassign": "use assign(partitions) with those that stay",
        "unassign": "use assign([])",
        "seek_to_beginning": 'use seek(partition, 0), or "auto.offset.reset": "earliest"',
        "seek_to_end": _OFFSETS.format('"latest"') + " and seek",
        "beginning_offsets": _OFFSETS.format('"earliest"'),
        "end_offsets": _OFFSETS.format('"latest"'),
        "offsets_for_times": _OFFSETS.format("time_ms"),
        "get_watermark_offsets": _OFFSETS.format('"latest"'),
        "highwater": _OFFSETS.format('"latest"'),
        "topics": _TOPICS.format("use list_topics()"),
        "list_topics": _TOPICS.format("use list_topics()"),
        "partitions_for_topic": _TOPICS.format("use describe_topic(name)"),
        "wakeup": "cancel the task that polls, or poll for a shorter timeout_ms",
    },
    Role.ADMIN: {
        "poll": "there is nothing to poll; every method says how it fared",
        "describe_topics": "use describe_topic(name)",
        "list_consumer_groups": "use list_groups()",
        "describe_consumer_groups": "use describe_group(group_id)",
        "delete_consumer_groups": "use delete_group(group_id)",
        "delete_groups": "use delete_group(group_id)",
        "list_consumer_group_offsets": "use group_offsets(group_id)",
        "alter_consumer_group_offsets": "use alter_group_offsets(group_id, offsets)",
        "delete_consumer_group_offsets": "use delete_group_offsets",
        "alter_configs": "use incremental_alter_configs(name, configs)",
        "describe_log_dirs": "use describe_data_folders()",
    },
    Role.DRIVER: {},
}
"""Methods of other clients: what to call here."""

for _table in METHODS.values():
    _table["stop"] = "use close"

"""Serves the APIs of this broker: one small module each, named after its API.

A module has one function ``handle(context, request)``; `oncelog.broker.net.request` defines what it
may return. A module is imported at the first request of its API: importing all of them would triple
the start-up time. This module must not know any single API's rules.
"""

from __future__ import annotations

import importlib
from typing import Final, NamedTuple

from oncelog.broker.apis import needs
from oncelog.broker.apis.needs import InParts, Nothing, Whole
from oncelog.broker.net.request import Api
from oncelog.protocol.api import ApiKey

__all__ = ["HANDLERS", "Served", "find"]


class Served(NamedTuple):
    """How one API is served."""

    module: str
    """The module in this package that handles it."""
    needs: Nothing | Whole | InParts
    """What its client must be allowed to do."""
    is_controller_only: bool = False
    """Whether only the controller can carry it out: a broker that is not the controller has to
    forward it. These are the APIs that Kafka's brokers forward (`ApiKeys.forwardable`)."""
    reads_bytes: bool = False
    """Whether its handler parses the body and encodes the reply itself."""


HANDLERS: Final[dict[ApiKey, Served]] = {
    ApiKey.PRODUCE: Served(
        "produce",
        InParts("records", needs.WRITE_TRANSACTIONAL_ID, needs.WRITE_TOPIC),
        reads_bytes=True,
    ),
    ApiKey.FETCH: Served(
        "fetch", InParts("records", needs.READ_TOPIC, needs.CLUSTER_ACTION), reads_bytes=True
    ),
    ApiKey.LIST_OFFSETS: Served("list_offsets", InParts("topics", needs.DESCRIBE_TOPIC)),
    ApiKey.METADATA: Served(
        "metadata",
        InParts(
            "metadata",
            needs.DESCRIBE_TOPIC,
            needs.CREATE_CLUSTER,
            needs.CREATE_TOPIC,
            needs.DESCRIBE_CLUSTER,
        ),
    ),
    ApiKey.OFFSET_COMMIT: Served(
        "offset_commit", InParts("offsets", needs.READ_GROUP, needs.READ_TOPIC)
    ),
    ApiKey.OFFSET_FETCH: Served(
        "offset_fetch", InParts("offsets", needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC)
    ),
    ApiKey.FIND_COORDINATOR: Served(
        "find_coordinator",
        InParts(
            "cluster", needs.DESCRIBE_GROUP, needs.DESCRIBE_TRANSACTIONAL_ID, needs.CLUSTER_ACTION
        ),
    ),
    ApiKey.JOIN_GROUP: Served(
        "join_group", InParts("groups", needs.READ_GROUP, needs.DESCRIBE_TOPIC)
    ),
    ApiKey.HEARTBEAT: Served("heartbeat", Whole(needs.READ_GROUP, "group_id")),
    ApiKey.LEAVE_GROUP: Served("leave_group", Whole(needs.READ_GROUP, "group_id")),
    ApiKey.SYNC_GROUP: Served("sync_group", InParts("groups", needs.READ_GROUP)),
    ApiKey.SASL_HANDSHAKE: Served(
        "sasl_handshake", Nothing("a client says how it wants to authenticate")
    ),
    ApiKey.SASL_AUTHENTICATE: Served("sasl_authenticate", Nothing("a client says who it is")),
    ApiKey.API_VERSIONS: Served(
        "api_versions", Nothing("a client asks for it before it says who it is")
    ),
    ApiKey.CREATE_TOPICS: Served(
        "create_topics",
        InParts(
            "topic_changes", needs.CREATE_CLUSTER, needs.CREATE_TOPIC, needs.DESCRIBE_TOPIC_CONFIGS
        ),
        is_controller_only=True,
    ),
    ApiKey.DELETE_TOPICS: Served(
        "delete_topics",
        InParts("topic_changes", needs.DELETE_CLUSTER, needs.DELETE_TOPIC, needs.DESCRIBE_TOPIC),
        is_controller_only=True,
    ),
    ApiKey.INIT_PRODUCER_ID: Served(
        "init_producer_id",
        InParts(
            "transactions", needs.WRITE_TRANSACTIONAL_ID, needs.IDEMPOTENT_WRITE, needs.WRITE_TOPIC
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served(
        "add_partitions_to_txn",
        InParts(
            "transactions", needs.WRITE_TRANSACTIONAL_ID, needs.WRITE_TOPIC, needs.CLUSTER_ACTION
        ),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Served(
        "add_offsets_to_txn",
        InParts("transactions", needs.WRITE_TRANSACTIONAL_ID, needs.READ_GROUP),
    ),
    ApiKey.END_TXN: Served("end_txn", Whole(needs.WRITE_TRANSACTIONAL_ID, "transactional_id")),
    ApiKey.TXN_OFFSET_COMMIT: Served(
        "txn_offset_commit",
        InParts("offsets", needs.WRITE_TRANSACTIONAL_ID, needs.READ_GROUP, needs.READ_TOPIC),
    ),
    ApiKey.DESCRIBE_CONFIGS: Served(
        "describe_configs",
        InParts(
            "configs",
            needs.DESCRIBE_TOPIC_CONFIGS,
            needs.DESCRIBE_GROUP_CONFIGS,
            needs.DESCRIBE_CLUSTER_CONFIGS,
        ),
    ),
    ApiKey.DESCRIBE_CLUSTER: Served("describe_cluster", InParts("cluster", needs.DESCRIBE_CLUSTER)),
    ApiKey.DESCRIBE_GROUPS: Served("describe_groups", InParts("groups", needs.DESCRIBE_GROUP)),
    ApiKey.LIST_GROUPS: Served(
        "list_groups", InParts("groups", needs.DESCRIBE_CLUSTER, needs.DESCRIBE_GROUP)
    ),
    ApiKey.DELETE_GROUPS: Served("delete_groups", InParts("groups", needs.DELETE_GROUP)),
    ApiKey.OFFSET_DELETE: Served(
        "offset_delete", InParts("offsets", needs.DELETE_GROUP, needs.READ_TOPIC)
    ),
    ApiKey.CREATE_PARTITIONS: Served(
        "create_partitions", InParts("topic_changes", needs.ALTER_TOPIC), is_controller_only=True
    ),
    ApiKey.ALTER_CONFIGS: Served(
        "alter_configs",
        InParts(
            "configs",
            needs.ALTER_TOPIC_CONFIGS,
            needs.ALTER_GROUP_CONFIGS,
            needs.ALTER_CLUSTER_CONFIGS,
        ),
        is_controller_only=True,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(
        "incremental_alter_configs",
        InParts(
            "configs",
            needs.ALTER_TOPIC_CONFIGS,
            needs.ALTER_GROUP_CONFIGS,
            needs.ALTER_CLUSTER_CONFIGS,
        ),
        is_controller_only=True,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served(
        "offset_for_leader_epoch", InParts("topics", needs.CLUSTER_ACTION, needs.DESCRIBE_TOPIC)
    ),
    ApiKey.DELETE_RECORDS: Served("delete_records", InParts("topics", needs.DELETE_TOPIC)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served(
        "describe_topic_partitions", InParts("metadata", needs.DESCRIBE_TOPIC)
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served("alter_replica_log_dirs", Whole(needs.ALTER_CLUSTER)),
    ApiKey.DESCRIBE_LOG_DIRS: Served("describe_log_dirs", Whole(needs.DESCRIBE_CLUSTER)),
    ApiKey.ELECT_LEADERS: Served(
        "elect_leaders", Whole(needs.ALTER_CLUSTER), is_controller_only=True
    ),
    ApiKey.UPDATE_FEATURES: Served(
        "update_features", Whole(needs.ALTER_CLUSTER), is_controller_only=True
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served(
        "describe_client_quotas", Whole(needs.DESCRIBE_CLUSTER_CONFIGS)
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Served(
        "alter_client_quotas", Whole(needs.ALTER_CLUSTER_CONFIGS), is_controller_only=True
    ),
    ApiKey.DESCRIBE_ACLS: Served("describe_acls", Whole(needs.DESCRIBE_CLUSTER)),
    ApiKey.CREATE_ACLS: Served("create_acls", Whole(needs.ALTER_CLUSTER), is_controller_only=True),
    ApiKey.DELETE_ACLS: Served("delete_acls", Whole(needs.ALTER_CLUSTER), is_controller_only=True),
    ApiKey.WRITE_TXN_MARKERS: Served(
        "write_txn_markers", InParts("transactions", needs.ALTER_CLUSTER, needs.CLUSTER_ACTION)
    ),
    ApiKey.DESCRIBE_PRODUCERS: Served("describe_producers", InParts("topics", needs.READ_TOPIC)),
    ApiKey.UNREGISTER_BROKER: Served(
        "unregister_broker", Whole(needs.ALTER_CLUSTER), is_controller_only=True
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Served(
        "describe_transactions",
        InParts("transactions", needs.DESCRIBE_TRANSACTIONAL_ID, needs.DESCRIBE_TOPIC),
    ),
    ApiKey.LIST_TRANSACTIONS: Served(
        "list_transactions", InParts("transactions", needs.DESCRIBE_TRANSACTIONAL_ID)
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(
        "alter_partition_reassignments", Whole(needs.ALTER_CLUSTER), is_controller_only=True
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(
        "list_partition_reassignments", Whole(needs.DESCRIBE_CLUSTER), is_controller_only=True
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served(
        "consumer_group_heartbeat", InParts("groups", needs.READ_GROUP, needs.DESCRIBE_TOPIC)
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served(
        "consumer_group_describe", InParts("groups", needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Served(
        "list_config_resources", Whole(needs.DESCRIBE_CLUSTER_CONFIGS)
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served(
        "describe_user_scram_credentials", Whole(needs.DESCRIBE_CLUSTER)
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(
        "alter_user_scram_credentials", Whole(needs.ALTER_CLUSTER), is_controller_only=True
    ),
    ApiKey.CONTROLLER_EVENT: Served("controller_event", Whole(needs.CLUSTER_ACTION)),
    ApiKey.APPLIED_REVISION: Served("applied_revision", Whole(needs.CLUSTER_ACTION)),
}
"""The APIs of this broker. ApiVersions announces these keys, but for `PRIVATE` ones."""

_found: dict[ApiKey, Api] = {}


def find(key: ApiKey) -> Api | None:
    """Return the handler of `key`, imported on first use; None for an API that is not served."""
    api = _found.get(key)
    if api is None and key in HANDLERS:
        served = HANDLERS[key]
        module = importlib.import_module(f"{__name__}.{served.module}")
        api = _found[key] = Api(key, module.handle, served.reads_bytes)
    return api

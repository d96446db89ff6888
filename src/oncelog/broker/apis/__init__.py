"""Serves the APIs of this broker: one small module each, named after its API.

A module has one function ``handle(context, request)``; `oncelog.broker.net.request` defines what it
may return. A module is imported at the first request of its API: importing all of them would triple
the start-up time. This module must not know any single API's rules.
"""

from __future__ import annotations

import importlib
from typing import Final, NamedTuple

from oncelog.broker.net.request import Api
from oncelog.protocol.api import ApiKey

__all__ = ["HANDLERS", "Served", "find"]


class Served(NamedTuple):
    """How one API is served."""

    module: str
    """The module in this package that handles it."""
    is_controller_only: bool = False
    """Whether only the controller can carry it out: a broker that is not the controller has to
    forward it. These are the APIs that Kafka's brokers forward (`ApiKeys.forwardable`)."""
    reads_bytes: bool = False
    """Whether its handler parses the body and encodes the reply itself."""


HANDLERS: Final[dict[ApiKey, Served]] = {
    ApiKey.PRODUCE: Served("produce", reads_bytes=True),
    ApiKey.FETCH: Served("fetch", reads_bytes=True),
    ApiKey.LIST_OFFSETS: Served("list_offsets"),
    ApiKey.METADATA: Served("metadata"),
    ApiKey.OFFSET_COMMIT: Served("offset_commit"),
    ApiKey.OFFSET_FETCH: Served("offset_fetch"),
    ApiKey.FIND_COORDINATOR: Served("find_coordinator"),
    ApiKey.JOIN_GROUP: Served("join_group"),
    ApiKey.HEARTBEAT: Served("heartbeat"),
    ApiKey.LEAVE_GROUP: Served("leave_group"),
    ApiKey.SYNC_GROUP: Served("sync_group"),
    ApiKey.SASL_HANDSHAKE: Served("sasl_handshake"),
    ApiKey.SASL_AUTHENTICATE: Served("sasl_authenticate"),
    ApiKey.API_VERSIONS: Served("api_versions"),
    ApiKey.CREATE_TOPICS: Served("create_topics", is_controller_only=True),
    ApiKey.DELETE_TOPICS: Served("delete_topics", is_controller_only=True),
    ApiKey.INIT_PRODUCER_ID: Served("init_producer_id"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served("add_partitions_to_txn"),
    ApiKey.ADD_OFFSETS_TO_TXN: Served("add_offsets_to_txn"),
    ApiKey.END_TXN: Served("end_txn"),
    ApiKey.TXN_OFFSET_COMMIT: Served("txn_offset_commit"),
    ApiKey.DESCRIBE_CONFIGS: Served("describe_configs"),
    ApiKey.DESCRIBE_CLUSTER: Served("describe_cluster"),
    ApiKey.DESCRIBE_GROUPS: Served("describe_groups"),
    ApiKey.LIST_GROUPS: Served("list_groups"),
    ApiKey.DELETE_GROUPS: Served("delete_groups"),
    ApiKey.OFFSET_DELETE: Served("offset_delete"),
    ApiKey.CREATE_PARTITIONS: Served("create_partitions", is_controller_only=True),
    ApiKey.ALTER_CONFIGS: Served("alter_configs", is_controller_only=True),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served("incremental_alter_configs", is_controller_only=True),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served("offset_for_leader_epoch"),
    ApiKey.DELETE_RECORDS: Served("delete_records"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served("describe_topic_partitions"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served("alter_replica_log_dirs"),
    ApiKey.DESCRIBE_LOG_DIRS: Served("describe_log_dirs"),
    ApiKey.ELECT_LEADERS: Served("elect_leaders", is_controller_only=True),
    ApiKey.UPDATE_FEATURES: Served("update_features", is_controller_only=True),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served("describe_client_quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: Served("alter_client_quotas", is_controller_only=True),
    ApiKey.DESCRIBE_ACLS: Served("describe_acls"),
    ApiKey.CREATE_ACLS: Served("create_acls", is_controller_only=True),
    ApiKey.DELETE_ACLS: Served("delete_acls", is_controller_only=True),
    ApiKey.WRITE_TXN_MARKERS: Served("write_txn_markers"),
    ApiKey.DESCRIBE_PRODUCERS: Served("describe_producers"),
    ApiKey.UNREGISTER_BROKER: Served("unregister_broker", is_controller_only=True),
    ApiKey.DESCRIBE_TRANSACTIONS: Served("describe_transactions"),
    ApiKey.LIST_TRANSACTIONS: Served("list_transactions"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(
        "alter_partition_reassignments", is_controller_only=True
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(
        "list_partition_reassignments", is_controller_only=True
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served("consumer_group_heartbeat"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served("consumer_group_describe"),
    ApiKey.LIST_CONFIG_RESOURCES: Served("list_config_resources"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served("describe_user_scram_credentials"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(
        "alter_user_scram_credentials", is_controller_only=True
    ),
    ApiKey.CONTROLLER_EVENT: Served("controller_event"),
    ApiKey.APPLIED_REVISION: Served("applied_revision"),
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

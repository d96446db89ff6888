"""Says which error codes the clients of each version know, and what older ones are told instead.

A client takes a code that it does not know for UNKNOWN_SERVER_ERROR, and most give up on that. So
Kafka replaces some newer codes for older versions, and so do we, with Kafka's replacements; where
Kafka tells old clients the newer code, we do too. `KNOWN` is the whole table: the writers of
responses (`codec`, and the handlers of Produce and Fetch) apply it to codes other than NONE, so
that no handler looks at versions for this. A decision that also needs the state, such as that only
newer members must come back with an id (MEMBER_ID_REQUIRED), stays with its handler.

Kafka 0.11, the first with record batches and transactions, knows the codes up to
`OLDEST_CODE_MAX`; each newer one that an API may answer has a row here. Tests hold that.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey

__all__ = ["KNOWN", "OLDEST_CODE_MAX", "Known", "replacements"]

OLDEST_CODE_MAX: Final = 55
"""Every client that can read record batches knows the codes up to this one."""


class Known(NamedTuple):
    """The first version of an API whose clients know an error code."""

    since: int
    below: ErrorCode | None = None
    """What older versions get. None for the code itself.

    Then Kafka gives it to them as well, or their requests cannot cause it: they lack the field for
    it, or the handler asks for the version because more than the code depends on it.
    """


_ABORTABLE = ErrorCode.invalid_txn_state
_FENCED = ErrorCode.invalid_producer_epoch

_EPOCHS: Final = {
    ErrorCode.fenced_leader_epoch: Known(4),
    ErrorCode.unknown_leader_epoch: Known(4),
}

KNOWN: Final[Mapping[ApiKey, Mapping[ErrorCode, Known]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: {
            ErrorCode.kafka_storage_error: Known(4),
            # Java's class for it extends that of OUT_OF_ORDER_SEQUENCE_NUMBER for this reason.
            ErrorCode.unknown_producer_id: Known(5, ErrorCode.out_of_order_sequence_number),
            ErrorCode.unsupported_compression_type: Known(7),
            ErrorCode.invalid_record: Known(8),
            ErrorCode.transaction_abortable: Known(11, _ABORTABLE),
            ErrorCode.unknown_topic_id: Known(13),
        },
        ApiKey.FETCH: {
            # Both make a client refresh its metadata and retry (KafkaApis, handleFetchRequest).
            ErrorCode.kafka_storage_error: Known(6, ErrorCode.not_leader_or_follower),
            ErrorCode.fetch_session_id_not_found: Known(7),
            ErrorCode.invalid_fetch_session_epoch: Known(7),
            ErrorCode.fenced_leader_epoch: Known(9),
            ErrorCode.unknown_leader_epoch: Known(9),
            ErrorCode.unknown_topic_id: Known(13),
            # A session that began with topic ids and continues with names.
            ErrorCode.fetch_session_topic_id_error: Known(13),
        },
        ApiKey.LIST_OFFSETS: {
            ErrorCode.kafka_storage_error: Known(3),
            **_EPOCHS,
            ErrorCode.offset_not_available: Known(5, ErrorCode.leader_not_available),
        },
        ApiKey.METADATA: {
            ErrorCode.kafka_storage_error: Known(5),
            ErrorCode.listener_not_found: Known(6, ErrorCode.leader_not_available),
            ErrorCode.unknown_topic_id: Known(12),
        },
        ApiKey.OFFSET_COMMIT: {
            ErrorCode.fenced_instance_id: Known(7),
            ErrorCode.group_id_not_found: Known(9, ErrorCode.illegal_generation),
            ErrorCode.stale_member_epoch: Known(9, ErrorCode.unsupported_version),
            ErrorCode.unknown_topic_id: Known(10),
        },
        ApiKey.OFFSET_FETCH: {
            ErrorCode.unstable_offset_commit: Known(7),
            ErrorCode.stale_member_epoch: Known(9),
            ErrorCode.unknown_topic_id: Known(10),
        },
        ApiKey.JOIN_GROUP: {
            ErrorCode.member_id_required: Known(4),
            ErrorCode.group_max_size_reached: Known(4),
            ErrorCode.fenced_instance_id: Known(5),
        },
        ApiKey.HEARTBEAT: {ErrorCode.fenced_instance_id: Known(3)},
        ApiKey.LEAVE_GROUP: {ErrorCode.fenced_instance_id: Known(3)},
        ApiKey.SYNC_GROUP: {ErrorCode.fenced_instance_id: Known(3)},
        ApiKey.DESCRIBE_GROUPS: {ErrorCode.group_id_not_found: Known(6)},
        ApiKey.API_VERSIONS: {ErrorCode.rebootstrap_required: Known(5)},
        ApiKey.CREATE_TOPICS: {
            ErrorCode.kafka_storage_error: Known(3, ErrorCode.unknown_server_error),
            ErrorCode.throttling_quota_exceeded: Known(6),
        },
        ApiKey.DELETE_TOPICS: {
            ErrorCode.topic_deletion_disabled: Known(3, ErrorCode.invalid_request),
            ErrorCode.throttling_quota_exceeded: Known(5),
            ErrorCode.unknown_topic_id: Known(6),
        },
        ApiKey.DELETE_RECORDS: {ErrorCode.kafka_storage_error: Known(1)},
        ApiKey.INIT_PRODUCER_ID: {ErrorCode.producer_fenced: Known(4, _FENCED)},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            ErrorCode.kafka_storage_error: Known(2),
            ErrorCode.fenced_leader_epoch: Known(2),
            ErrorCode.unknown_leader_epoch: Known(2),
        },
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            ErrorCode.producer_fenced: Known(2, _FENCED),
            # Only brokers verify; Kafka tells those of version 4 as well.
            ErrorCode.transaction_abortable: Known(5),
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {ErrorCode.producer_fenced: Known(2, _FENCED)},
        ApiKey.END_TXN: {ErrorCode.producer_fenced: Known(2, _FENCED)},
        ApiKey.TXN_OFFSET_COMMIT: {
            # Older than OLDEST_CODE_MAX, but producers before Kafka 2.0 die of it (KAFKA-7296).
            ErrorCode.coordinator_load_in_progress: Known(2, ErrorCode.coordinator_not_available),
            ErrorCode.fenced_instance_id: Known(3),
            ErrorCode.transaction_abortable: Known(4, _ABORTABLE),
            ErrorCode.group_id_not_found: Known(6, ErrorCode.illegal_generation),
            ErrorCode.stale_member_epoch: Known(6, ErrorCode.illegal_generation),
            ErrorCode.unknown_topic_id: Known(6),
        },
        ApiKey.ALTER_CONFIGS: {
            ErrorCode.kafka_storage_error: Known(1, ErrorCode.unknown_server_error),
        },
        ApiKey.ALTER_REPLICA_LOG_DIRS: {
            ErrorCode.kafka_storage_error: Known(0),
            ErrorCode.log_dir_not_found: Known(0),
        },
        ApiKey.DESCRIBE_LOG_DIRS: {ErrorCode.kafka_storage_error: Known(0)},
        ApiKey.CREATE_PARTITIONS: {
            ErrorCode.kafka_storage_error: Known(0),
            ErrorCode.throttling_quota_exceeded: Known(3),
        },
        ApiKey.DELETE_GROUPS: {
            ErrorCode.non_empty_group: Known(0),
            ErrorCode.group_id_not_found: Known(0),
        },
        ApiKey.SASL_AUTHENTICATE: {ErrorCode.sasl_authentication_failed: Known(0)},
        ApiKey.ELECT_LEADERS: {
            ErrorCode.preferred_leader_not_available: Known(0),
            ErrorCode.eligible_leaders_not_available: Known(1),
            ErrorCode.election_not_needed: Known(1),
        },
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {ErrorCode.kafka_storage_error: Known(0)},
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            ErrorCode.no_reassignment_in_progress: Known(0),
        },
        ApiKey.OFFSET_DELETE: {
            ErrorCode.non_empty_group: Known(0),
            ErrorCode.group_id_not_found: Known(0),
            ErrorCode.group_subscribed_to_topic: Known(0),
        },
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {
            ErrorCode.resource_not_found: Known(0),
            ErrorCode.duplicate_resource: Known(0),
        },
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
            ErrorCode.resource_not_found: Known(0),
            ErrorCode.duplicate_resource: Known(0),
            ErrorCode.unacceptable_credential: Known(0),
        },
        ApiKey.UPDATE_FEATURES: {ErrorCode.invalid_update_version: Known(0)},
        ApiKey.UNREGISTER_BROKER: {ErrorCode.broker_id_not_registered: Known(0)},
        ApiKey.DESCRIBE_CLUSTER: {
            ErrorCode.mismatched_endpoint_type: Known(1),
            ErrorCode.unsupported_endpoint_type: Known(1),
        },
        ApiKey.WRITE_TXN_MARKERS: {ErrorCode.kafka_storage_error: Known(0)},
        ApiKey.DESCRIBE_PRODUCERS: {ErrorCode.kafka_storage_error: Known(0)},
        ApiKey.DESCRIBE_TRANSACTIONS: {ErrorCode.transactional_id_not_found: Known(0)},
        ApiKey.LIST_TRANSACTIONS: {ErrorCode.invalid_regular_expression: Known(2)},
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {
            ErrorCode.group_id_not_found: Known(0),
            ErrorCode.group_max_size_reached: Known(0),
            ErrorCode.fenced_instance_id: Known(0),
            ErrorCode.fenced_member_epoch: Known(0),
            ErrorCode.unreleased_instance_id: Known(0),
            ErrorCode.unsupported_assignor: Known(0),
            ErrorCode.invalid_regular_expression: Known(1),
        },
        ApiKey.CONSUMER_GROUP_DESCRIBE: {ErrorCode.group_id_not_found: Known(0)},
    }
)


@cache
def replacements(api: ApiKey, version: int) -> Mapping[int, ErrorCode]:
    """Return what clients of this version are told instead of the codes that they do not know."""
    known = KNOWN.get(api, {})
    return MappingProxyType(
        {
            code: row.below
            for code, row in known.items()
            if version < row.since and row.below is not None
        }
    )

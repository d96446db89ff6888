"""Defines the API versions and the behaviour of each stock client that peers imitate.

The versions are those negotiated between each client and Apache Kafka 4.4. For an API that a flavor
does not name, the newest common version is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from oncelog.protocol.api import ApiKey

__all__ = ["FLAVORS", "JAVA", "LIBRDKAFKA", "OLD", "Flavor"]


@dataclass(frozen=True, slots=True)
class Flavor:
    """One kind of client.

    `coordinator_lane`: coordinators get a connection of their own (librdkafka's logical brokers);
    otherwise they share the one that produces. `one_partition_per_request`: a Produce request
    carries one partition. `bumps_locally`: an idempotent producer raises its own epoch.
    `bump_replaces_abort`: where a transaction needs a new epoch, InitProducerId replaces EndTxn
    (both TV1). `produce_epoch_is_fatal`: INVALID_PRODUCER_EPOCH to a Produce ends the producer, not
    the transaction only.
    """

    name: str
    at_most: Mapping[ApiKey, int]
    transaction_version: int
    coordinator_lane: bool = False
    one_partition_per_request: bool = False
    bumps_locally: bool = False
    bump_replaces_abort: bool = False
    produce_epoch_is_fatal: bool = False
    can_bump: bool = True
    fetch_sessions: bool = True
    static_membership: bool = True
    knows_generation: bool = True
    """TxnOffsetCommit carries member and generation (KIP-447)."""
    consumer_protocol: bool = True
    """It can be a member under KIP-848."""
    compares_epochs: bool = True
    """A consumer detects that the log lost records that it had read (KIP-320)."""


LIBRDKAFKA: Final = Flavor(
    "librdkafka",
    MappingProxyType(
        {
            ApiKey.PRODUCE: 10,
            ApiKey.FETCH: 16,
            ApiKey.LIST_OFFSETS: 7,
            ApiKey.OFFSET_COMMIT: 9,
            ApiKey.OFFSET_FETCH: 9,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
            ApiKey.FIND_COORDINATOR: 2,
            ApiKey.JOIN_GROUP: 5,
            ApiKey.HEARTBEAT: 3,
            ApiKey.LEAVE_GROUP: 1,
            ApiKey.SYNC_GROUP: 3,
            ApiKey.INIT_PRODUCER_ID: 4,
            ApiKey.ADD_PARTITIONS_TO_TXN: 0,
            ApiKey.ADD_OFFSETS_TO_TXN: 0,
            ApiKey.END_TXN: 1,
            ApiKey.TXN_OFFSET_COMMIT: 3,
        }
    ),
    transaction_version=1,
    coordinator_lane=True,
    one_partition_per_request=True,
    bump_replaces_abort=True,
    produce_epoch_is_fatal=True,
    fetch_sessions=False,
)

JAVA: Final = Flavor(
    "java",
    MappingProxyType({ApiKey.ADD_PARTITIONS_TO_TXN: 3}),
    transaction_version=2,
    bumps_locally=True,
)

JAVA_WITHOUT_TV2: Final = MappingProxyType({ApiKey.PRODUCE: 11, ApiKey.END_TXN: 4})
"""The Java client's versions in a transaction if the cluster has no transaction.version 2."""

OLD: Final = Flavor(
    "old",
    MappingProxyType(
        {
            ApiKey.PRODUCE: 3,
            ApiKey.FETCH: 4,
            ApiKey.LIST_OFFSETS: 1,
            # In older versions the broker creates every requested topic.
            ApiKey.METADATA: 4,
            ApiKey.OFFSET_COMMIT: 3,
            ApiKey.OFFSET_FETCH: 3,
            ApiKey.FIND_COORDINATOR: 1,
            ApiKey.JOIN_GROUP: 2,
            ApiKey.HEARTBEAT: 1,
            ApiKey.LEAVE_GROUP: 1,
            ApiKey.SYNC_GROUP: 1,
            ApiKey.DESCRIBE_GROUPS: 1,
            ApiKey.LIST_GROUPS: 1,
            ApiKey.CREATE_TOPICS: 2,
            ApiKey.DELETE_TOPICS: 1,
            ApiKey.DELETE_RECORDS: 0,
            ApiKey.INIT_PRODUCER_ID: 0,
            ApiKey.ADD_PARTITIONS_TO_TXN: 0,
            ApiKey.ADD_OFFSETS_TO_TXN: 0,
            ApiKey.END_TXN: 0,
            ApiKey.TXN_OFFSET_COMMIT: 0,
            ApiKey.CREATE_PARTITIONS: 0,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
        }
    ),
    transaction_version=1,
    can_bump=False,
    fetch_sessions=False,
    static_membership=False,
    knows_generation=False,
    consumer_protocol=False,
    compares_epochs=False,
)

FLAVORS: Final[Mapping[str, Flavor]] = MappingProxyType(
    {flavor.name: flavor for flavor in (LIBRDKAFKA, JAVA, OLD)}
)

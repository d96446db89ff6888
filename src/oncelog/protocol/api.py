"""The names and versions of Kafka's APIs.

`ADVERTISED` holds the ranges that Apache Kafka 4.4 announces, for every API that this project
implements or is about to; a broker announces the part of it that it has handlers for. What is
between brokers of Oncelog alone has a key above Kafka's, and is announced to no client. This module
knows no message and no handler.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class ApiKey(IntEnum):
    """Kafka's API keys (`ApiKeys.java`), spelled as there, and ours (`PRIVATE`)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    CONTROLLER_EVENT = 20_000
    APPLIED_REVISION = 20_001

    @property
    def schema_name(self) -> str:
        """The API's name in lower case: the modules of its messages and of its handler."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The API's name in Kafka's messages: ``EndTxn``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class VersionRange(NamedTuple):
    """An inclusive range of request versions."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        """Whether the range holds this version."""
        return isinstance(version, int) and self.min <= version <= self.max


NEVER: Final = 1 << 15
"""A version above all others, for an API without flexible versions."""


class Row(NamedTuple):
    """The supported versions of one API."""

    min: int
    max: int
    flexible_since: int
    """The first version with compact types, tagged fields and request header v2 (KIP-482)."""


_TABLE: Final[Mapping[int, Row]] = MappingProxyType(
    {
        # Produce announces 0 though 3 is the lowest accepted: librdkafka takes a higher minimum for
        # a broker too old for its features (KAFKA-18659).
        ApiKey.PRODUCE: Row(0, 13, 9),
        ApiKey.FETCH: Row(4, 18, 12),
        ApiKey.LIST_OFFSETS: Row(1, 11, 6),
        ApiKey.METADATA: Row(0, 13, 9),
        ApiKey.OFFSET_COMMIT: Row(2, 10, 8),
        ApiKey.OFFSET_FETCH: Row(1, 10, 6),
        ApiKey.FIND_COORDINATOR: Row(0, 6, 3),
        ApiKey.JOIN_GROUP: Row(0, 9, 6),
        ApiKey.HEARTBEAT: Row(0, 4, 4),
        ApiKey.LEAVE_GROUP: Row(0, 5, 4),
        ApiKey.SYNC_GROUP: Row(0, 5, 4),
        ApiKey.DESCRIBE_GROUPS: Row(0, 6, 5),
        ApiKey.LIST_GROUPS: Row(0, 5, 3),
        ApiKey.SASL_HANDSHAKE: Row(0, 1, NEVER),
        ApiKey.API_VERSIONS: Row(0, 5, 3),
        ApiKey.CREATE_TOPICS: Row(2, 7, 5),
        ApiKey.DELETE_TOPICS: Row(1, 6, 4),
        ApiKey.DELETE_RECORDS: Row(0, 2, 2),
        ApiKey.INIT_PRODUCER_ID: Row(0, 5, 2),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Row(2, 4, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: Row(0, 5, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: Row(0, 4, 3),
        ApiKey.END_TXN: Row(0, 5, 3),
        ApiKey.WRITE_TXN_MARKERS: Row(1, 2, 1),
        ApiKey.TXN_OFFSET_COMMIT: Row(0, 6, 3),
        ApiKey.DESCRIBE_ACLS: Row(1, 3, 2),
        ApiKey.CREATE_ACLS: Row(1, 3, 2),
        ApiKey.DELETE_ACLS: Row(1, 3, 2),
        ApiKey.DESCRIBE_CONFIGS: Row(1, 4, 4),
        ApiKey.ALTER_CONFIGS: Row(0, 2, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Row(1, 2, 2),
        ApiKey.DESCRIBE_LOG_DIRS: Row(1, 5, 2),
        ApiKey.SASL_AUTHENTICATE: Row(0, 2, 2),
        ApiKey.CREATE_PARTITIONS: Row(0, 3, 2),
        ApiKey.DELETE_GROUPS: Row(0, 3, 2),
        ApiKey.ELECT_LEADERS: Row(0, 2, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(0, 1, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row(0, 1, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Row(0, 0, 0),
        ApiKey.OFFSET_DELETE: Row(0, 0, NEVER),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Row(0, 1, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: Row(0, 1, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Row(0, 0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Row(0, 0, 0),
        ApiKey.UPDATE_FEATURES: Row(0, 2, 0),
        ApiKey.DESCRIBE_CLUSTER: Row(0, 2, 0),
        ApiKey.DESCRIBE_PRODUCERS: Row(0, 0, 0),
        ApiKey.UNREGISTER_BROKER: Row(0, 0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: Row(0, 0, 0),
        ApiKey.LIST_TRANSACTIONS: Row(0, 2, 0),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Row(0, 1, 0),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Row(0, 1, 0),
        ApiKey.LIST_CONFIG_RESOURCES: Row(0, 1, 0),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Row(0, 0, 0),
        ApiKey.CONTROLLER_EVENT: Row(0, 0, 0),
        ApiKey.APPLIED_REVISION: Row(0, 1, 0),
    }
)

PRIVATE: Final = frozenset({ApiKey.CONTROLLER_EVENT, ApiKey.APPLIED_REVISION})
"""APIs between brokers of Oncelog: no client is told of them."""

VERSIONS: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {api: VersionRange(row.min, row.max) for api, row in _TABLE.items()}
)
"""The versions of each API that can be read and written."""

ADVERTISED: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {api: versions for api, versions in VERSIONS.items() if api not in PRIVATE}
)

PRODUCE_VERSION_MIN: Final = 3
"""The lowest accepted version of Produce; lower ones are announced only."""


def accepts(api: ApiKey | int, version: int) -> bool:
    """Whether a request of this API and version can be parsed and answered."""
    versions = VERSIONS.get(api)
    if versions is None:
        return False
    if api == ApiKey.PRODUCE and version < PRODUCE_VERSION_MIN:
        return False
    return versions.min <= version <= versions.max


_SOFTWARE_PATTERN: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_software_name(name: str) -> bool:
    """Whether ApiVersions may give this as name or version of a client's software (KIP-511)."""
    return _SOFTWARE_PATTERN.fullmatch(name) is not None


def is_flexible(api: ApiKey | int, version: int) -> bool:
    """Whether this version has compact types, tagged fields and request header v2 (KIP-482)."""
    return version >= flexible_since(api)


def flexible_since(api: ApiKey | int) -> int:
    """The first flexible version of an API; beyond every version when it has none."""
    row = _TABLE.get(api)
    return NEVER if row is None else row.flexible_since


def newest(api: ApiKey) -> int:
    """Return the newest supported version of an API."""
    return ADVERTISED[api].max

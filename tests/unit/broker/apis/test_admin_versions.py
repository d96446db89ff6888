"""Every administrative API answers in every version that is announced for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.messages.alter_configs import AlterConfigsResource
from oncelog.protocol.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirTopic,
)
from oncelog.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
from oncelog.protocol.messages.create_acls import AclCreation
from oncelog.protocol.messages.create_partitions import CreatePartitionsTopic
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from oncelog.protocol.messages.elect_leaders import TopicPartitions
from oncelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsResource as IncrementalResource,
)
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from tests.unit.broker.apis.test_topics import create, topic
from tests.unit.broker.context import Client, running

NONE = ErrorCode.none


GONE = ScramCredentialDeletion(name="gone", mechanism=1)


def of(cls: type, **fields: Any) -> Any:
    return cls(**fields)


def elsewhere(name: str) -> Any:
    """Move a partition to a folder that is not the broker's."""
    moved = AlterReplicaLogDirTopic(name=name, partitions=(0,))
    return AlterReplicaLogDir(path="/x", topics=(moved,))


async def everything(client: Client, api: ApiKey, version: int, name: str) -> list[ErrorCode]:
    """Ask for something small and return the errors of the answer, outermost first."""
    ask = client.ask
    match api:
        case ApiKey.DESCRIBE_GROUPS:
            response = await ask(api, version, groups=("g",))
            return [group.error_code for group in response.groups]
        case ApiKey.LIST_GROUPS:
            return [(await ask(api, version)).error_code]
        case ApiKey.DELETE_GROUPS:
            response = await ask(api, version, groups_names=("g",))
            return [result.error_code for result in response.results]
        case ApiKey.CREATE_PARTITIONS:
            grown = of(CreatePartitionsTopic, name=name, count=3, assignments=None)
            response = await ask(api, version, topics=(grown,))
            return [result.error_code for result in response.results]
        case ApiKey.ALTER_CONFIGS:
            resource = of(AlterConfigsResource, resource_type=2, resource_name=name)
            response = await ask(api, version, resources=(resource,))
            return [r.error_code for r in response.responses]
        case ApiKey.INCREMENTAL_ALTER_CONFIGS:
            resource = of(IncrementalResource, resource_type=2, resource_name=name)
            response = await ask(api, version, resources=(resource,))
            return [r.error_code for r in response.responses]
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            part = of(OffsetForLeaderPartition, partition=0, current_leader_epoch=-1)
            asked = of(OffsetForLeaderTopic, topic=name, partitions=(part,))
            response = await ask(api, version, topics=(asked,))
            return [p.error_code for t in response.topics for p in t.partitions]
        case ApiKey.DELETE_RECORDS:
            deleted = of(DeleteRecordsPartition, partition_index=0, offset=-1)
            asked = of(DeleteRecordsTopic, name=name, partitions=(deleted,))
            response = await ask(api, version, topics=(asked,))
            return [p.error_code for t in response.topics for p in t.partitions]
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            response = await ask(api, version, dirs=(elsewhere(name),))
            return [p.error_code for t in response.results for p in t.partitions]
        case ApiKey.DESCRIBE_LOG_DIRS:
            response = await ask(api, version, topics=None)
            return [result.error_code for result in response.results]
        case ApiKey.ELECT_LEADERS | ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            return await of_replicas(client, api, version, name)
        case ApiKey.DESCRIBE_ACLS:
            return [(await ask(api, version, permission_type=1)).error_code]
        case ApiKey.CREATE_ACLS:
            response = await ask(api, version, creations=(of(AclCreation, permission_type=3),))
            return [result.error_code for result in response.results]
        case ApiKey.DELETE_ACLS:
            response = await ask(api, version, filters=(of(DeleteAclsFilter),))
            return [result.error_code for result in response.filter_results]
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            response = await ask(api, version, deletions=(GONE,))
            return [result.error_code for result in response.results]
        case ApiKey.WRITE_TXN_MARKERS:
            asked = of(WritableTxnMarkerTopic, name="gone", partition_indexes=(0,))
            response = await ask(
                api, version, markers=(of(WritableTxnMarker, producer_id=7, topics=(asked,)),)
            )
            return [p.error_code for m in response.markers for t in m.topics for p in t.partitions]
    response = await ask(api, version)
    return [getattr(response, "error_code", NONE)]


async def of_replicas(client: Client, api: ApiKey, version: int, name: str) -> list[ErrorCode]:
    """Ask for an election in partition 0 of a topic, or cancel its reassignment."""
    if api is ApiKey.ELECT_LEADERS:
        elected = TopicPartitions(topic=name, partitions=(0,))
        response = await client.ask(api, version, topic_partitions=(elected,))
        (result,) = response.replica_election_results
        return [response.error_code, *(p.error_code for p in result.partition_result)]
    cancelled = ReassignablePartition(partition_index=0, replicas=None)
    asked = ReassignableTopic(name=name, partitions=(cancelled,))
    response = await client.ask(api, version, topics=(asked,))
    (result,) = response.responses
    return [response.error_code, *(p.error_code for p in result.partitions)]


EXPECTED: dict[ApiKey, list[ErrorCode]] = {
    ApiKey.DESCRIBE_GROUPS: [ErrorCode.not_coordinator],
    ApiKey.LIST_GROUPS: [NONE],
    ApiKey.DELETE_GROUPS: [ErrorCode.not_coordinator],
    ApiKey.CREATE_PARTITIONS: [NONE],
    ApiKey.ALTER_CONFIGS: [NONE],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [NONE],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [NONE],
    ApiKey.DELETE_RECORDS: [NONE],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [ErrorCode.log_dir_not_found],
    ApiKey.DESCRIBE_LOG_DIRS: [NONE],
    ApiKey.ELECT_LEADERS: [NONE, ErrorCode.election_not_needed],
    ApiKey.DESCRIBE_ACLS: [ErrorCode.security_disabled],
    ApiKey.CREATE_ACLS: [ErrorCode.security_disabled],
    ApiKey.DELETE_ACLS: [ErrorCode.security_disabled],
    ApiKey.WRITE_TXN_MARKERS: [ErrorCode.unknown_topic_or_partition],
    ApiKey.OFFSET_DELETE: [ErrorCode.not_coordinator],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [NONE],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [NONE],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [ErrorCode.resource_not_found],
    ApiKey.DESCRIBE_PRODUCERS: [NONE],
    ApiKey.UNREGISTER_BROKER: [ErrorCode.broker_id_not_registered],
    ApiKey.DESCRIBE_TRANSACTIONS: [NONE],
    ApiKey.LIST_TRANSACTIONS: [NONE],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [NONE, ErrorCode.no_reassignment_in_progress],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [NONE],
    ApiKey.LIST_CONFIG_RESOURCES: [NONE],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [NONE],
}


async def test_every_api_answers_in_every_version(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        for api, expected in EXPECTED.items():
            versions = ADVERTISED[api]
            for version in range(versions.min, versions.max + 1):
                name = f"{api.schema_name}-{version}"
                await create(client, topic(name))
                errors = await everything(client, api, version, name)
                assert errors == expected, f"{api.schema_name} version {version}"

"""Asks where the partitions of one client's topics are, and how large: all of them are empty.

Parameters: those of `exact_asking`.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import alter_replica_log_dirs, delete_records, describe_log_dirs
from oncelog.simulation.peers.exact_metadata import TopicsSeen

__all__ = ["ask_for_folders", "ask_for_moves", "delete_records_of_empty_logs"]

_NOWHERE: Final = "/nowhere"
_TIMEOUT_MS: Final = 30_000


def _folder(asker: TopicsSeen) -> str:
    return asker.context.settings["log.dirs"]


async def ask_for_folders(asker: TopicsSeen) -> None:
    """DescribeLogDirs of all, or of our partitions alone. Raises `LostError`."""
    topics = list(asker.model.topics.values())
    named = None
    if asker.context.chance(0.5):
        topics = asker.context.rng.sample(topics, min(2, len(topics)))
        named = tuple(
            describe_log_dirs.DescribableLogDirTopic(
                topic=topic.name, partitions=tuple(range(0, topic.partitions + 2, 2))
            )
            for topic in topics
        )
    request = describe_log_dirs.DescribeLogDirsRequest(topics=named)
    answer = await asker.ask(ApiKey.DESCRIBE_LOG_DIRS, request)
    wanted = {
        (topic.name, index): describe_log_dirs.DescribeLogDirsPartition(partition_index=index)
        for topic in topics
        for index in range(0, topic.partitions, 1 if named is None else 2)
    }
    told = {}
    for result in answer.response.results:
        for topic in result.topics:
            for partition in topic.partitions:
                if topic.name.startswith(asker.prefix) and topic.name not in asker.model.doubtful:
                    told[topic.name, partition.partition_index] = partition
    asker.expect(
        told == wanted, lambda: f"DescribeLogDirs v{answer.version} gave {told}, wanted {wanted}"
    )
    paths = [(result.log_dir, result.error_code) for result in answer.response.results]
    asker.expect(
        paths == [(_folder(asker), ErrorCode.none)]
        and answer.response.error_code is ErrorCode.none,
        lambda: f"DescribeLogDirs v{answer.version} gave the folders {paths}",
    )
    are_sound = all(
        0 <= result.usable_bytes <= result.total_bytes and not result.is_cordoned
        for result in answer.response.results
    )
    asker.expect(
        are_sound or answer.version < 4,
        lambda: f"DescribeLogDirs v{answer.version} gave the sizes of {answer.response.results}",
    )


async def ask_for_moves(asker: TopicsSeen) -> None:
    """AlterReplicaLogDirs to where the partitions are, and to nowhere. Raises `LostError`."""
    rng = asker.context.rng
    names = [*asker.model.topics, f"{asker.prefix}none"]
    to = rng.choice((_folder(asker), _folder(asker), _NOWHERE))
    asked = dict.fromkeys(rng.sample(names, min(2, len(names))), (0, 1))
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=(
            alter_replica_log_dirs.AlterReplicaLogDir(
                path=to,
                topics=tuple(
                    alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in asked.items()
                ),
            ),
        )
    )
    answer = await asker.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, request)
    results = []
    for name, indexes in asked.items():
        topic = asker.model.topics.get(name)
        errors = []
        for index in indexes:
            is_there = topic is not None and index < topic.partitions
            error = ErrorCode.none if is_there else ErrorCode.replica_not_available
            error = ErrorCode.log_dir_not_found if to == _NOWHERE else error
            errors.append(
                alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=error
                )
            )
        results.append(
            alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=name, partitions=tuple(errors)
            )
        )
    asker.compare(
        answer, alter_replica_log_dirs.AlterReplicaLogDirsResponse(results=tuple(results))
    )


async def delete_records_of_empty_logs(asker: TopicsSeen) -> None:
    """DeleteRecords where there are none. Raises `LostError`."""
    rng = asker.context.rng
    names = [*asker.model.topics, f"{asker.prefix}none"]
    asked = {name: rng.choice((0, -1, -1, 5, -2)) for name in rng.sample(names, 1)}
    request = delete_records.DeleteRecordsRequest(
        topics=tuple(
            delete_records.DeleteRecordsTopic(
                name=name,
                partitions=tuple(
                    delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
                    for index in (0, 1)
                ),
            )
            for name, offset in asked.items()
        ),
        timeout_ms=_TIMEOUT_MS,
    )
    answer = await asker.ask(ApiKey.DELETE_RECORDS, request)
    results = []
    for name, offset in asked.items():
        topic = asker.model.topics.get(name)
        rows = []
        for index in (0, 1):
            error = ErrorCode.none
            if topic is None or index >= topic.partitions:
                error = ErrorCode.unknown_topic_or_partition
            elif topic.config.get("cleanup.policy") == "compact":
                error = ErrorCode.policy_violation
            elif offset not in (0, -1):
                error = ErrorCode.offset_out_of_range
            rows.append(
                delete_records.DeleteRecordsPartitionResult(
                    partition_index=index,
                    low_watermark=0 if error is ErrorCode.none else -1,
                    error_code=error,
                )
            )
        results.append(delete_records.DeleteRecordsTopicResult(name=name, partitions=tuple(rows)))
    asker.compare(answer, delete_records.DeleteRecordsResponse(topics=tuple(results)))

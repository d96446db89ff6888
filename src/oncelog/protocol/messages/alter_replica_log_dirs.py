"""AlterReplicaLogDirs."""

from dataclasses import dataclass

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Error, Int32, RequestFor, String


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopic:
    """An element of `topics` in AlterReplicaLogDir."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDir:
    """An element of `dirs` in AlterReplicaLogDirsRequest."""

    path: String = ""
    topics: tuple[AlterReplicaLogDirTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsRequest(RequestFor["AlterReplicaLogDirsResponse"]):
    """AlterReplicaLogDirs, versions 1 to 2."""

    dirs: tuple[AlterReplicaLogDir, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult:
    """An element of `partitions` in AlterReplicaLogDirTopicResult."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult:
    """An element of `results` in AlterReplicaLogDirsResponse."""

    topic_name: String = ""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...] = ()

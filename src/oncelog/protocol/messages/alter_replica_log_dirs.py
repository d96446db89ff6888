"""AlterReplicaLogDirs."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String


@message
class AlterReplicaLogDirTopic:
    """An element of `topics` in AlterReplicaLogDir."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


@message
class AlterReplicaLogDir:
    """An element of `dirs` in AlterReplicaLogDirsRequest."""

    path: String = ""
    topics: tuple[AlterReplicaLogDirTopic, ...] = ()


@message
class AlterReplicaLogDirsRequest(RequestFor["AlterReplicaLogDirsResponse"]):
    """AlterReplicaLogDirs, versions 1 to 2."""

    dirs: tuple[AlterReplicaLogDir, ...] = ()


@message
class AlterReplicaLogDirPartitionResult:
    """An element of `partitions` in AlterReplicaLogDirTopicResult."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none


@message
class AlterReplicaLogDirTopicResult:
    """An element of `results` in AlterReplicaLogDirsResponse."""

    topic_name: String = ""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = ()


@message
class AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...] = ()

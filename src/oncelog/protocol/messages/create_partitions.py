"""CreatePartitions."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int32, RequestFor, String


@message
class CreatePartitionsAssignment:
    """An element of `assignments` in CreatePartitionsTopic."""

    broker_ids: tuple[Int32, ...] = ()


@message
class CreatePartitionsTopic:
    """An element of `topics` in CreatePartitionsRequest."""

    name: String = ""
    count: Int32 = 0
    assignments: tuple[CreatePartitionsAssignment, ...] | None = ()


@message
class CreatePartitionsRequest(RequestFor["CreatePartitionsResponse"]):
    """CreatePartitions, versions 0 to 3."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Boolean = False


@message
class CreatePartitionsTopicResult:
    """An element of `results` in CreatePartitionsResponse."""

    name: String = ""
    error_code: Error = ErrorCode.none
    error_message: String | None = None


@message
class CreatePartitionsResponse:
    """CreatePartitions's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()

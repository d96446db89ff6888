"""ConsumerGroupDescribe (KIP-848)."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int8, Int32, RequestFor, String, Uuid, Versions


@message
class ConsumerGroupDescribeRequest(RequestFor["ConsumerGroupDescribeResponse"]):
    """ConsumerGroupDescribe, versions 0 to 1."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Boolean = False


@message
class ConsumerGroupDescribeTopicPartitions:
    """An element of `topic_partitions` in ConsumerGroupDescribeAssignment."""

    topic_id: Uuid = None
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


@message
class ConsumerGroupDescribeAssignment:
    """The current or target assignment of a member."""

    topic_partitions: tuple[ConsumerGroupDescribeTopicPartitions, ...] = ()


@message
class ConsumerGroupDescribeMember:
    """An element of `members` in ConsumerGroupDescribeGroup.

    `member_type` is 0 for a member of the classic protocol, 1 for one of the new, -1 for unknown.
    """

    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: String | None = None
    assignment: ConsumerGroupDescribeAssignment = ConsumerGroupDescribeAssignment()
    target_assignment: ConsumerGroupDescribeAssignment = ConsumerGroupDescribeAssignment()
    member_type: Annotated[Int8, Versions(1)] = -1


@message
class ConsumerGroupDescribeGroup:
    """An element of `groups` in ConsumerGroupDescribeResponse."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[ConsumerGroupDescribeMember, ...] = ()
    authorized_operations: Int32 = -2147483648


@message
class ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe's response."""

    throttle_time_ms: Int32 = 0
    groups: tuple[ConsumerGroupDescribeGroup, ...] = ()

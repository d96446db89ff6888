"""ConsumerGroupHeartbeat (KIP-848)."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String, Uuid, Versions


@message
class ConsumerGroupHeartbeatTopicPartitions:
    """Partitions of one topic, owned or assigned."""

    topic_id: Uuid = None
    partitions: tuple[Int32, ...] = ()


@message
class ConsumerGroupHeartbeatRequest(RequestFor["ConsumerGroupHeartbeatResponse"]):
    """ConsumerGroupHeartbeat, versions 0 to 1. A field of None (or -1) has not changed."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[String, ...] | None = None
    subscribed_topic_regex: Annotated[String | None, Versions(1)] = None
    server_assignor: String | None = None
    topic_partitions: tuple[ConsumerGroupHeartbeatTopicPartitions, ...] | None = None


@message
class ConsumerGroupHeartbeatAssignment:
    """`assignment` of ConsumerGroupHeartbeatResponse."""

    topic_partitions: tuple[ConsumerGroupHeartbeatTopicPartitions, ...] = ()


@message
class ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat's response. An assignment of None has not changed."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ConsumerGroupHeartbeatAssignment | None = None

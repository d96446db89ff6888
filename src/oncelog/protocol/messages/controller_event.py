"""ControllerEvent, between brokers of Oncelog: Kafka has no such API.

`oncelog.controller.event_codec` encodes the event and the reply.
"""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Bytes, Error, Int32, Int64, RequestFor, String


@message
class ControllerEventRequest(RequestFor["ControllerEventResponse"]):
    """ControllerEvent, version 0: what a broker has the controller decide on."""

    broker_id: Int32 = -1
    broker_epoch: Int64 = -1
    event: Bytes = b""


@message
class ControllerEventResponse:
    """ControllerEvent's response: `reply` is the event's, unless there is an error."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    revision: Int64 = -1
    reply: Bytes = b""

"""UnregisterBroker."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String


@message
class UnregisterBrokerRequest(RequestFor["UnregisterBrokerResponse"]):
    """UnregisterBroker, version 0."""

    broker_id: Int32 = 0


@message
class UnregisterBrokerResponse:
    """UnregisterBroker's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None

"""AddOffsetsToTxn."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int16, Int32, Int64, RequestFor, String


@message
class AddOffsetsToTxnRequest(RequestFor["AddOffsetsToTxnResponse"]):
    """AddOffsetsToTxn, versions 0 to 4."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


@message
class AddOffsetsToTxnResponse:
    """AddOffsetsToTxn's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none

"""EndTxn."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Boolean,
    Error,
    Int16,
    Int32,
    Int64,
    RequestFor,
    String,
    Versions,
)


@message
class EndTxnRequest(RequestFor["EndTxnResponse"]):
    """EndTxn, versions 0 to 5."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Boolean = False


@message
class EndTxnResponse:
    """EndTxn's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    producer_id: Annotated[Int64, Versions(5)] = -1
    producer_epoch: Annotated[Int16, Versions(5)] = -1

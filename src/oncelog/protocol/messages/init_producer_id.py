"""InitProducerId.

Tagged fields from `OWN_TAGS` on are Oncelog's (`oncelog.protocol.fields`).
"""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    OWN_TAGS,
    Boolean,
    Error,
    Int16,
    Int32,
    Int64,
    RequestFor,
    String,
    Tag,
    Versions,
)


@message
class InitProducerIdRequest(RequestFor["InitProducerIdResponse"]):
    """InitProducerId, versions 0 to 5.

    `is_administrator`: a command aborts what the id has open, and no producer starts.
    """

    transactional_id: String | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Versions(3)] = -1
    producer_epoch: Annotated[Int16, Versions(3)] = -1
    is_administrator: Annotated[Boolean, Versions(2), Tag(OWN_TAGS)] = False


@message
class InitProducerIdResponse:
    """InitProducerId's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0

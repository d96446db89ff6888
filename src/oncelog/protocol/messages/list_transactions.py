"""ListTransactions.

Tagged fields from `OWN_TAGS` on are Oncelog's (`oncelog.protocol.fields`).
"""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    OWN_TAGS,
    Boolean,
    Error,
    Int32,
    Int64,
    RequestFor,
    String,
    Tag,
    Versions,
)


@message
class ListTransactionsRequest(RequestFor["ListTransactionsResponse"]):
    """ListTransactions, versions 0 to 2."""

    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, Versions(1)] = -1
    transactional_id_pattern: Annotated[String | None, Versions(2)] = None
    include_expiry: Annotated[Boolean, Tag(OWN_TAGS)] = False


@message
class TransactionOverview:
    """An element of `transaction_states` in ListTransactionsResponse."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""
    expires_at_ms: Annotated[Int64, Tag(OWN_TAGS)] = -1
    """When the id expires unless it is used; -1 while a transaction is open."""


@message
class ListTransactionsResponse:
    """ListTransactions's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[TransactionOverview, ...] = ()

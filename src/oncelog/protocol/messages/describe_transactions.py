"""DescribeTransactions.

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
)


@message
class DescribeTransactionsRequest(RequestFor["DescribeTransactionsResponse"]):
    """DescribeTransactions, versions 0 to 0."""

    transactional_ids: tuple[String, ...] = ()
    include_life: Annotated[Boolean, Tag(OWN_TAGS)] = False


@message
class TopicData:
    """An element of `topics` in DescribedTransaction."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message
class LifeStep:
    """An element of `life` in DescribedTransaction: something that happened to the id.

    `kind` is one of `oncelog.transaction.life.StepKind`; `more_count` partitions are not named.
    """

    timestamp_ms: Int64 = 0
    kind: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[TopicData, ...] = ()
    error_code: Error = ErrorCode.none
    cause: String = ""
    more_count: Annotated[Int32, Tag(OWN_TAGS)] = 0


@message
class DescribedTransaction:
    """An element of `transaction_states` in DescribeTransactionsResponse.

    `cause` is why the producer was last fenced, or how an id that is not found expired.
    """

    error_code: Error = ErrorCode.none
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[TopicData, ...] = ()
    life: Annotated[tuple[LifeStep, ...], Tag(OWN_TAGS)] = ()
    trouble: Annotated[String, Tag(OWN_TAGS + 1)] = ""
    cause: Annotated[String, Tag(OWN_TAGS + 2)] = ""


@message
class DescribeTransactionsResponse:
    """DescribeTransactions's response."""

    throttle_time_ms: Int32 = 0
    transaction_states: tuple[DescribedTransaction, ...] = ()

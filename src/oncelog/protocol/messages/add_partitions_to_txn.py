"""AddPartitionsToTxn.

Tagged fields from `OWN_TAGS` on are Oncelog's (`oncelog.protocol.fields`): its brokers send them
from version 4 on.
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
    Single,
    String,
    Tag,
    Versions,
)


@message
class AddPartitionsToTxnTopic:
    """An element of `topics` in AddPartitionsToTxnTransaction."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


@message
class AddPartitionsToTxnTransaction:
    """An element of `transactions` in AddPartitionsToTxnRequest."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Annotated[Boolean, Versions(4)] = False
    topics: tuple[AddPartitionsToTxnTopic, ...] = ()
    wait_ms: Annotated[Int32, Versions(4), Tag(OWN_TAGS)] = -1
    """How long it may wait for the transaction before; -1: no broker of Oncelog asks."""


@message
class AddPartitionsToTxnRequest(RequestFor["AddPartitionsToTxnResponse"]):
    """AddPartitionsToTxn, versions 0 to 5."""

    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], Single(3)] = ()
    """Up to version 3 its fields are the request's own."""


@message
class AddPartitionsToTxnPartitionResult:
    """An element of `results_by_partition` in AddPartitionsToTxnTopicResult."""

    partition_index: Int32 = 0
    partition_error_code: Error = ErrorCode.none


@message
class AddPartitionsToTxnTopicResult:
    """An element of `topic_results` in AddPartitionsToTxnResult."""

    name: String = ""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


@message
class AddPartitionsToTxnResult:
    """An element of `results_by_transaction` in AddPartitionsToTxnResponse."""

    transactional_id: Annotated[String, Versions(4)] = ""
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = ()
    coordinator_epoch: Annotated[Int32, Versions(4), Tag(OWN_TAGS)] = -1
    """Of the coordinator that decided; only to brokers of Oncelog."""


@message
class AddPartitionsToTxnResponse:
    """AddPartitionsToTxn's response."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Error, Versions(4)] = ErrorCode.none
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], Single(3)] = ()
    """Up to version 3 its topics are the response's own."""

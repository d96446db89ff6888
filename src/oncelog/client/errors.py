"""Defines the errors of a client, in three kinds that callers handle differently (KIP-1050).

- `RetriableError`: a later attempt may succeed; the client already retried until its own deadline.
- `AbortableError`: the transaction has failed; abort it and begin the next one with the same
  producer.
- `FatalError`: this producer (or this request) can never succeed; `FencedError` means that another
  instance took over.

Every error has the protocol's `code`. `classify` has the whole table; it is a pure function of the
code and the operation.
"""

from collections.abc import Iterable
from enum import Enum

from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import TopicPartition

__all__ = [
    "AbortableError",
    "AuthenticationError",
    "ClientError",
    "CommitFailedError",
    "ConnectionLostError",
    "DeliveryTimeoutError",
    "FatalError",
    "FencedError",
    "IllegalStateError",
    "LogTruncationError",
    "OffsetOutOfRangeError",
    "Operation",
    "RetriableError",
    "UndeliveredError",
    "classify",
    "most_severe",
]


class ClientError(OncelogError):
    """Base of all errors of `oncelog.client`. `code` is the protocol's error code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name.upper()}: {message}" if message else code.name.upper())
        self.code = code
        self.message = message


class RetriableError(ClientError):
    """A later attempt may succeed.

    Raised once the client's own retries ran out of time; the outcome may be unknown.
    """


class ConnectionLostError(RetriableError):
    """The connection was lost, or a request had no response in time.

    Whether the request took effect is unknown.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.network_exception, message)


class AbortableError(ClientError):
    """The transaction can no longer commit. Abort it; the producer stays usable."""


class DeliveryTimeoutError(AbortableError):
    """A batch was not acknowledged within `delivery_timeout_ms`. It may still be in the log.

    In a transaction: abort it. Without one: the records may be in the log, at most once.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.request_timed_out, message)


class FatalError(ClientError):
    """No retry can help: the producer must be closed, or the request was wrong."""


class AuthenticationError(FatalError):
    """Authentication failed: the broker refused the client, or could not prove its identity.

    With SASL or TLS. The message names broker, mechanism and principal, but no secret.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        # The message is complete; TLS has no code of its own.
        self.args = (message,)


class FencedError(FatalError):
    """A newer instance with the same transactional id, or a timeout, fenced this one (INV-5)."""


class IllegalStateError(ClientError):
    """The call is not allowed in this state (sending outside a transaction, for example).

    No request was sent and no state changed.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_txn_state, message)
        # No broker gave the code, and the call may have nothing to do with a transaction.
        self.args = (message,)


class CommitFailedError(ClientError):
    """The group went on without this member, so it may no longer commit what it read.

    Another member may read the same records. The next `poll` takes part in the group again.
    """


class UndeliveredError(ClientError):
    """Records failed whose futures were not awaited before the producer's block ended.

    `__cause__` is the error of the first of them, whose `code` this has.
    """

    def __init__(self, first: ClientError, message: str) -> None:
        super().__init__(first.code, message)
        self.args = (message,)
        self.__cause__ = first


class OffsetOutOfRangeError(FatalError):
    """The offset is before the log's start or after its end, and no reset policy was given."""


class LogTruncationError(OffsetOutOfRangeError):
    """The log lost records that the consumer has read (KIP-320).

    The consumer's position in `topic_partition` was `offset`. Its records equal the log's up to
    `diverging`; later offsets have other records, or none yet. Seek to `diverging` to read those.
    None: the leader knows no common offset.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: int,
        diverging: OffsetAndMetadata | None,
    ) -> None:
        where = "it is not known from which offset on"
        if diverging is not None:
            where = f"from offset {diverging.offset} on (end of epoch {diverging.leader_epoch})"
        super().__init__(
            ErrorCode.offset_out_of_range,
            f"{topic_partition} was read up to offset {offset}, but lost records {where};"
            " seek there, or set auto_offset_reset, to read what took their place",
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.diverging = diverging


class Operation(Enum):
    """The operation that failed: one code has different meanings (KIP-588)."""

    PRODUCE = "produce"
    """A batch of an idempotent or plain producer."""
    TRANSACTIONAL_PRODUCE = "transactional produce"
    TRANSACTION = "transaction"
    """A call to the transaction coordinator, or an offset commit in a transaction."""
    FETCH = "fetch"
    """A read of records."""
    OTHER = "other"


_FENCING = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transaction_coordinator_fenced,
    }
)

_ABORTABLE_CALL = frozenset(
    {
        ErrorCode.transaction_abortable,
        ErrorCode.unknown_producer_id,
        ErrorCode.group_authorization_failed,
        ErrorCode.topic_authorization_failed,
        ErrorCode.operation_not_attempted,
        ErrorCode.fenced_instance_id,
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.stale_member_epoch,
        ErrorCode.group_id_not_found,
        ErrorCode.offset_metadata_too_large,
    }
)
"""Errors of a coordinator call, or an offset commit, after which a new transaction can begin."""

_RETRIED_FETCH = frozenset({ErrorCode.unknown_server_error})
"""Answers to a fetch that Kafka's consumer retries although they are not retriable by code."""

_FATAL_PRODUCE = frozenset(
    {
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.unsupported_version,
    }
)
"""Answers to a transactional batch that no new transaction can cure.

All others cost the transaction only.
"""


def classify(code: ErrorCode, operation: Operation, message: str = "") -> ClientError:
    """Return the error that `code` means after `operation`. `code` must not be `none`.

    Source: KIP-588, KIP-890, KIP-1050. INVALID_PRODUCER_EPOCH from a produce means that the
    coordinator aborted the transaction by timeout or that another producer took over: abortable,
    because the next request to the coordinator decides which. From the coordinator itself it is
    fatal. A fetch that is answered CORRUPT_MESSAGE names damage on the broker's disk, which a retry
    finds again; UNKNOWN_SERVER_ERROR is tried again, as by Kafka's consumer.
    """
    if operation is Operation.FETCH and code is ErrorCode.corrupt_message:
        return FatalError(code, message)
    if code.retriable or (operation is Operation.FETCH and code in _RETRIED_FETCH):
        return RetriableError(code, message)
    if operation is Operation.TRANSACTIONAL_PRODUCE:
        if code is ErrorCode.producer_fenced:
            return FencedError(code, message)
        kind = FatalError if code in _FATAL_PRODUCE else AbortableError
        return kind(code, message)
    if operation is Operation.TRANSACTION and code in _ABORTABLE_CALL:
        return AbortableError(code, message)
    if operation is not Operation.OTHER and code in _FENCING:
        return FencedError(code, message)
    if code is ErrorCode.offset_out_of_range:
        return OffsetOutOfRangeError(code, message)
    return FatalError(code, message)


def most_severe(errors: Iterable[ClientError]) -> ClientError:
    """Return the first error that no retry can cure, else the first. There must be one."""
    found = list(errors)
    return next((each for each in found if not isinstance(each, RetriableError)), found[0])

"""Converts between transaction metadata and the records of `__transaction_state`.

The protocol package encodes the bytes; this module checks the values.
"""

from collections import defaultdict
from functools import lru_cache

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.protocol.records import transaction_log
from oncelog.transaction.states import TransactionMetadata, TransactionState

_NEVER_WRITTEN = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})
_PARTITION_SETS_CACHED_COUNT = 256
_STATE_BY_STATUS = {state.value: state for state in TransactionState if state not in _NEVER_WRITTEN}


def encode(
    metadata: TransactionMetadata, finalized_version: int = 2, decoded: object = None
) -> CoordinatorRecord:
    """Encode `metadata` as a record, as in Kafka an empty state without a partition list.

    At level 0 of `transaction.version` it has version 0, which older brokers read. Only of a
    transaction of TV2, whose producer did not ask for the level, it has version 1: version 0 has
    neither the next producer id nor what identifies its retries. TV1 needs none of these.
    """
    is_empty = metadata.state is TransactionState.EMPTY
    value = transaction_log.TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        timeout_ms=metadata.timeout_ms,
        status=metadata.state.status,
        partitions=None if is_empty else _by_topic(metadata.partitions),
        last_update_ms=metadata.last_update_timestamp_ms,
        start_ms=metadata.start_timestamp_ms,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=metadata.client_transaction_version,
    )
    key = transaction_log.encode_key(metadata.transactional_id)
    is_of_tv2 = metadata.client_transaction_version != 0
    version = 1 if finalized_version > 0 or is_of_tv2 else 0
    return CoordinatorRecord(key, transaction_log.encode_value(value, version), decoded)


@lru_cache(maxsize=_PARTITION_SETS_CACHED_COUNT)
def _by_topic(partitions: frozenset[TopicPartition]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Group partitions as the log has them; a producer's transactions mostly have the same ones."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in by_topic.items())


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that deletes an id."""
    return CoordinatorRecord(transaction_log.encode_key(transactional_id), None)


def decode(record: CoordinatorRecord) -> tuple[str | None, TransactionMetadata | None]:
    """Decode a record to the id and its metadata.

    (id, None) is a tombstone, (None, None) an unknown record type. Raises ProtocolError
    (corrupt_message) for bytes that cannot be decoded.
    """
    transactional_id = transaction_log.decode_key(record.key)
    if transactional_id is None or record.value is None:
        return transactional_id, None
    value = transaction_log.decode_value(record.value)
    state = _STATE_BY_STATUS.get(value.status)
    if state is None:
        message = f"{transactional_id} has the unknown transaction status {value.status}"
        raise ProtocolError(ErrorCode.corrupt_message, message)
    partitions = frozenset(
        TopicPartition(topic, number)
        for topic, numbers in value.partitions or ()
        for number in numbers
    )
    metadata = TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=ProducerId(value.producer_id),
        producer_epoch=ProducerEpoch(value.producer_epoch),
        timeout_ms=value.timeout_ms,
        state=state,
        partitions=partitions,
        start_timestamp_ms=value.start_ms,
        last_update_timestamp_ms=value.last_update_ms,
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        client_transaction_version=value.client_transaction_version,
    )
    return transactional_id, metadata

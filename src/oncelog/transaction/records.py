"""Between transaction metadata and the records of `__transaction_state`.

The bytes are the protocol room's business.
"""

from collections import defaultdict

from oncelog.coordinator.machine import Entry
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.protocol.records.transaction_log import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from oncelog.transaction.states import TransactionMetadata, TransactionState


def encode(metadata: TransactionMetadata) -> Entry:
    """Make the record that says `metadata`.

    An empty state has no partition list, as Kafka writes it.
    """
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(metadata.partitions):
        by_topic[topic].append(partition)
    partitions = tuple(
        TransactionLogPartitions(topic, tuple(numbers)) for topic, numbers in by_topic.items()
    )
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_timestamp_ms,
        transaction_start_timestamp_ms=metadata.start_timestamp_ms,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=metadata.client_transaction_version,
    )
    key = encode_key(TransactionLogKey(metadata.transactional_id))
    return Entry(key, encode_value(value))


def tombstone(transactional_id: str) -> Entry:
    """Make the record that removes an id."""
    return Entry(encode_key(TransactionLogKey(transactional_id)), None)


def decode(entry: Entry) -> tuple[str | None, TransactionMetadata | None]:
    """Read a record.

    The id and what stands about it, (id, None) for a tombstone, (None, None) for a newer kind.
    """
    key = decode_key(entry.key)
    if key is None:
        return None, None
    if entry.value is None:
        return key.transactional_id, None
    value = decode_value(entry.value)
    partitions = frozenset(
        TopicPartition(group.topic, number)
        for group in value.transaction_partitions or ()
        for number in group.partition_ids
    )
    metadata = TransactionMetadata(
        transactional_id=key.transactional_id,
        producer_id=ProducerId(value.producer_id),
        producer_epoch=ProducerEpoch(value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=partitions,
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        client_transaction_version=value.client_transaction_version,
    )
    return key.transactional_id, metadata
